"""The interface over HTTP: JSON in, JSON out, and the page that uses it."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from attendo.errors import AttendoError, ConfigError
from attendo.inspect import answers, cheating
from attendo.inspect import walk as walking
from attendo.inspect.heads import Head
from attendo.inspect.page import WEB
from attendo.serve.library import Library
from attendo.serve.questions import (
    LONGEST_TEXT,
    BeamsQuestion,
    CheatQuestion,
    ChecksQuestion,
    HeadQuestion,
    LayerQuestion,
    LookQuestion,
    OrderQuestion,
    TranslateQuestion,
    WalkQuestion,
)

Json = dict[str, Any]

LARGEST_BODY = 200_000
"""Bytes of a request."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def make_app(library: Library, hosts: Sequence[str] = ()) -> FastAPI:
    """Build the application for some models; if hosts are named, it answers to no other names."""
    app = FastAPI(title="attendo", openapi_url="/api/openapi.json", docs_url=None, redoc_url=None)
    _answer_questions(app, library)
    _walk(app, library)
    _explain_errors(app)

    @app.middleware("http")
    async def guard(
        request: Request, proceed: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        response = _refusal(request, hosts) or await proceed(request)
        response.headers.update(HEADERS)
        return response

    app.mount("/", StaticFiles(directory=str(WEB), html=True))
    return app


def _refusal(request: Request, hosts: Sequence[str]) -> Response | None:
    """Refuse what could harm, before anything is read."""
    if hosts and request.url.hostname not in hosts:
        # A page of somebody else whose name leads here must not read what is said here.
        return _error(403, f"this server answers to {', '.join(hosts)} only")
    length = request.headers.get("content-length")
    if length is None and request.method == "POST":
        return _error(411, "a request must say how long it is (Content-Length)")
    if length is not None and (not length.isdecimal() or int(length) > LARGEST_BODY):
        return _error(413, f"a request may have up to {LARGEST_BODY:,} bytes")
    return None


def _answer_questions(app: FastAPI, library: Library) -> None:
    @app.get("/api/models")
    def models() -> Json:
        return {"models": library.describe(), "longest_text": LONGEST_TEXT}

    @app.post("/api/translate")
    def translate(question: TranslateQuestion) -> Json:
        start = time.perf_counter()
        with library.translating:
            translator = library.without(question.model, question.silenced)
            answer = answers.translation_json(translator, question.source, question.beam)
        return {**answer, "milliseconds": round(1000 * (time.perf_counter() - start), 1)}

    @app.post("/api/look")
    def look(question: LookQuestion) -> Json:
        with library.looking:
            translator, looked = _look(library, question)
            return {"model": question.model, **answers.looked_json(translator, looked)}

    @app.post("/api/layer")
    def layer(question: LayerQuestion) -> Json:
        with library.looking:
            _, looked = _look(library, question)
            _check(question.layer, len(looked.weights[question.kind]), "layers")
            return answers.layer_json(looked, question.kind, question.layer)

    @app.post("/api/vectors")
    def vectors(question: HeadQuestion) -> Json:
        with library.looking:
            _, looked = _look(library, question)
            layers = looked.weights[question.kind]
            _check(question.layer, len(layers), "layers")
            _check(question.head, len(layers[question.layer]), "heads")
            head = Head(question.kind, question.layer, question.head)
            return answers.vectors_json(looked, head)

    @app.post("/api/checks")
    def checks(question: ChecksQuestion) -> Json:
        with library.looking:
            translator, looked = _look(library, question)
            layers = looked.weights["cross"]
            _check(question.layer, len(layers), "layers")
            _check(question.head, len(layers[0]) if layers else 0, "heads")
            return answers.checks_json(translator, looked, question.layer, question.head)

    @app.post("/api/ablation")
    def ablation(question: LookQuestion) -> Json:
        with library.looking:
            translator, looked = _look(library, question)
            return answers.ablation_json(translator, looked)

    @app.post("/api/beams")
    def beams(question: BeamsQuestion) -> Json:
        with library.translating:
            translator = library.without(question.model, question.silenced)
            return answers.beams_json(translator, question.source, question.beam)


def _walk(app: FastAPI, library: Library) -> None:
    @app.get("/walk", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(str(WEB / "walk.html"))

    @app.get("/api/walk/code")
    def code() -> Json:
        return {"code": walking.code()}

    @app.post("/api/walk")
    def walk(question: WalkQuestion) -> Json:
        with library.looking:
            return walking.walk(library.walker, question.source, question.target)

    @app.post("/api/walk/order")
    def order(question: OrderQuestion) -> Json:
        with library.looking:
            return walking.compare_order(
                library.walker, question.first, question.second, positions=question.positions
            )

    @app.post("/api/walk/cheat")
    def cheat(question: CheatQuestion) -> Json:
        with library.looking:
            return cheating.tell(library.cheaters, question.source)


def _look(library: Library, question: LookQuestion) -> Any:
    return library.look(question.model, question.source, question.target, question.silenced)


def _check(number: int | None, count: int, what: str) -> None:
    if number is not None and number >= count:
        raise ConfigError(
            f"number {number} does not exist; there are {count} {what}, counted from 0"
        )


def _explain_errors(app: FastAPI) -> None:
    """Answer every mistake with one line that says what to do, and nothing about the inside."""

    @app.exception_handler(AttendoError)
    def refuse(request: Request, error: AttendoError) -> JSONResponse:
        return _error(400, str(error))

    @app.exception_handler(RequestValidationError)
    def correct(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        is_text = first["type"] != "json_invalid"
        place = ".".join(map(str, first["loc"][1:])) if is_text else "the body"
        return _error(422, f"{place}: {first['msg'].lower()}")

    @app.exception_handler(HTTPException)
    def miss(request: Request, error: HTTPException) -> JSONResponse:
        return _error(error.status_code, str(error.detail))

    @app.exception_handler(Exception)
    def apologise(request: Request, error: Exception) -> JSONResponse:
        return _error(500, "something went wrong in the server; its log says what")


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status, headers=HEADERS)
