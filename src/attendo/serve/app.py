"""The HTTP API: JSON requests, JSON responses, and the pages that use it."""

import inspect
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

import attendo
from attendo.engines import Generator
from attendo.errors import AttendoError, ConfigError
from attendo.look import answers, halves, unmasked
from attendo.look import walk as walking
from attendo.look.heads import Head
from attendo.look.page import WEB
from attendo.serve import schema
from attendo.serve.guard import Guard, Limits, RequestError
from attendo.serve.library import Library
from attendo.serve.queues import Queue, WorkError, stop_if_asked
from attendo.serve.reference import http_page

Json = dict[str, Any]
Handler = TypeVar("Handler", bound=Callable[..., Json])

DESCRIPTION = (
    "Translate and continue texts, and inspect Transformers. Requests and responses are JSON. The "
    "server runs one translation and one inspection at a time; others wait for their turn."
)

ERRORS = {
    400: "The text or an option cannot be used with this model.",
    403: "The Host header names another server, or a page of another site sent the request.",
    408: "The request did not arrive in time.",
    411: "The request has no Content-Length header.",
    413: f"The request is larger than {Limits.body_bytes:,} bytes.",
    422: "A field is missing, unknown or outside its limits.",
    500: "The server failed; its log has the details.",
    503: "Too many requests are waiting; try again after the seconds in Retry-After.",
    504: "The request took longer than the time limit and was stopped.",
}


def make_app(library: Library, limits: Limits, names: Iterable[str] | None = None) -> Guard:
    """Build the application that is served; if names are given, it answers to no other hosts."""
    if library.reads_files:
        limits = replace(limits, body_bytes=max(limits.body_bytes, schema.LONGEST_FILE + 10_000))
    return Guard(make_api(library, limits), limits, names)


def make_api(library: Library, limits: Limits) -> FastAPI:
    """Build the API and the pages, without what guards them."""
    app = FastAPI(
        title="attendo",
        version=attendo.__version__,
        description=DESCRIPTION,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        responses={
            status: {"model": schema.ErrorResponse, "description": meaning}
            for status, meaning in ERRORS.items()
        },
    )
    inspecting = Queue("inspect", limits)
    _add_models(app, library, Queue("translate", limits))
    _add_inspection(app, library, inspecting)
    _add_walk(app, library, inspecting, training=Queue("train", limits))
    _add_pages(app)
    _explain_errors(app)
    app.mount("/", StaticFiles(directory=str(WEB)))
    return app


def _queued(
    app: FastAPI, path: str, queue: Queue, response: type[schema.Model]
) -> Callable[[Handler], Handler]:
    """Return a decorator that adds a POST endpoint whose work, up to the JSON, waits in a queue."""

    def add(handler: Handler) -> Handler:
        async def endpoint(**arguments: Any) -> Response:
            return await queue.run(lambda: _to_json(handler(**arguments)))

        endpoint.__signature__ = inspect.signature(handler)  # type: ignore[attr-defined]
        endpoint.__name__, endpoint.__doc__ = handler.__name__, handler.__doc__
        app.post(path, response_model=response)(endpoint)
        return handler

    return add


def _to_json(content: Json) -> JSONResponse:
    try:
        return JSONResponse(content)
    except ValueError:  # NaN and infinity are not JSON
        raise RequestError(
            500, "the model computed values that are not finite; its parameters are damaged"
        ) from None


def _add_models(app: FastAPI, library: Library, queue: Queue) -> None:
    @app.get("/api/models", response_model=schema.ModelsResponse)
    def models() -> JSONResponse:
        """List the models that are served."""
        return JSONResponse(
            {
                "models": library.describe(),
                "longest_text": schema.LONGEST_TEXT,
                "longest_file": schema.LONGEST_FILE,
            }
        )

    @_queued(app, "/api/translate", queue, schema.TranslateResponse)
    def translate(request: schema.TranslateRequest) -> Json:
        """Translate a text."""
        start = time.perf_counter()
        translator = library.translator(request.model, request.ablated)
        found = answers.translation_json(
            translator, request.source, request.beam, lambda n: stop_if_asked()
        )
        return {**found, "milliseconds": _milliseconds_since(start)}

    @_queued(app, "/api/generate", queue, schema.GenerateResponse)
    def generate(request: schema.GenerateRequest) -> Json:
        """Continue a text with a language model."""
        start = time.perf_counter()
        generator = library.without(request.model, request.ablated, Generator)
        options = (request.tokens, request.seed, request.temperature)
        found = answers.continuation_json(generator, request.source, *options)
        return {**found, "milliseconds": _milliseconds_since(start)}

    @_queued(app, "/api/beams", queue, schema.BeamsResponse)
    def beams(request: schema.BeamsRequest) -> Json:
        """Record a beam search as a tree of hypotheses."""
        engine = library.searching(request.model, request.source, request.ablated)
        return answers.beams_json(engine, request.source, request.beam)


def _milliseconds_since(start: float) -> float:
    return round(1000 * (time.perf_counter() - start), 1)


def _add_inspection(app: FastAPI, library: Library, queue: Queue) -> None:
    def record(request: schema.LookRequest) -> Any:
        return library.look(request.model, request.source, request.target, request.ablated)

    @_queued(app, "/api/look", queue, schema.LookResponse)
    def look(request: schema.LookRequest) -> Json:
        """Return attention weights, candidates and hidden-state norms for a sentence."""
        engine, recorded = record(request)
        return {"model": request.model, **answers.recording_json(engine, recorded)}

    @_queued(app, "/api/beginning", queue, schema.BeginningResponse)
    def beginning(request: schema.BeginningRequest) -> Json:
        """Return the beginning of a document: as much of it as a model reads at once."""
        return {"source": library.beginning(request.model, request.source)}

    @_queued(app, "/api/layer", queue, schema.LayerResponse)
    def layer(request: schema.LayerRequest) -> Json:
        """Return the attention weights of one layer."""
        _, recorded = record(request)
        _check(request.layer, len(recorded.weights[request.kind]), "layers")
        return answers.layer_json(recorded, request.kind, request.layer)

    @_queued(app, "/api/vectors", queue, schema.VectorsResponse)
    def vectors(request: schema.HeadRequest) -> Json:
        """Return queries, keys, values and scores of one attention head."""
        _, recorded = record(request)
        layers = recorded.weights[request.kind]
        _check(request.layer, len(layers), "layers")
        _check(request.head, len(layers[request.layer]), "heads")
        head = Head(request.kind, request.layer, request.head)
        return answers.vectors_json(recorded, head)

    @_queued(app, "/api/checks", queue, schema.ChecksResponse)
    def checks(request: schema.ChecksRequest) -> Json:
        """Compare cross-attention with occlusion and gradients."""
        engine, recorded = record(request)
        layers = recorded.weights["cross"]
        _check(request.layer, len(layers), "layers")
        _check(request.head, len(layers[0]) if layers else 0, "heads")
        return answers.checks_json(engine, recorded, request.layer, request.head)

    @_queued(app, "/api/ablation", queue, schema.AblationResponse)
    def ablation(request: schema.LookRequest) -> Json:
        """Measure the loss without each attention head."""
        engine, recorded = record(request)
        return answers.ablation_json(engine, recorded)


def _add_walk(app: FastAPI, library: Library, queue: Queue, training: Queue) -> None:
    @app.get("/api/walk/code", response_model=schema.CodeResponse)
    def code() -> JSONResponse:
        """Return the source code that the walk-through shows."""
        return JSONResponse({"code": walking.code()})

    @_queued(app, "/api/walk", queue, schema.WalkResponse)
    def walk(request: schema.WalkRequest) -> Json:
        """Compute every intermediate result of a small Transformer for one sentence."""
        return walking.walk(library.walker, request.source, request.target)

    @_queued(app, "/api/walk/order", queue, schema.OrderResponse)
    def order(request: schema.OrderRequest) -> Json:
        """Compare the encodings of two sentences with the same words."""
        return walking.compare_order(
            library.walker, request.first, request.second, positions=request.positions
        )

    @_queued(app, "/api/walk/bert", queue, schema.HalfResponse)
    def bert(request: schema.BertRequest) -> Json:
        """Predict each token of a sentence from all others, with a small BERT."""
        return halves.walk_bert(library.bert, request.source, request.hidden)

    @_queued(app, "/api/walk/gpt", queue, schema.HalfResponse)
    def gpt(request: schema.GptRequest) -> Json:
        """Predict each token of a sentence from those before it, with a small GPT."""
        return halves.walk_gpt(library.gpt, request.source)

    @_queued(app, "/api/walk/cheat", training, schema.CheatResponse)
    def cheat(request: schema.CheatRequest) -> Json:
        """Compare two small models trained with and without the look-ahead mask.

        The first request trains both, which takes a few seconds.
        """
        return unmasked.compare(library.cheaters, request.source)


def _add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def explorer_page() -> FileResponse:
        return FileResponse(str(WEB / "explorer" / "index.html"))

    @app.get("/walk", include_in_schema=False)
    def walk_page() -> FileResponse:
        return FileResponse(str(WEB / "walk" / "index.html"))

    @app.get("/docs", include_in_schema=False)
    def docs_page() -> HTMLResponse:
        return HTMLResponse(http_page(app.openapi()))


def _check(number: int | None, count: int, what: str) -> None:
    if number is not None and number >= count:
        raise ConfigError(
            f"number {number} does not exist; there are {count} {what}, counted from 0"
        )


def _explain_errors(app: FastAPI) -> None:
    """Register handlers that answer every error with one line and no internals."""

    @app.exception_handler(AttendoError)
    def refuse(request: Request, error: AttendoError) -> JSONResponse:
        return RequestError(400, str(error)).response()

    @app.exception_handler(RequestError)
    def pass_on(request: Request, error: RequestError) -> JSONResponse:
        return error.response()

    @app.exception_handler(RequestValidationError)
    def correct(request: Request, error: RequestValidationError) -> JSONResponse:
        return RequestError(422, _explain_field(error.errors()[0])).response()

    @app.exception_handler(HTTPException)
    def miss(request: Request, error: HTTPException) -> JSONResponse:
        return RequestError(error.status_code, str(error.detail).lower()).response()

    @app.exception_handler(WorkError)
    def fail(request: Request, error: WorkError) -> JSONResponse:
        message = f"the model failed on this text ({error}); the log of the server has the details"
        return RequestError(500, message).response()

    @app.exception_handler(Exception)
    def apologise(request: Request, error: Exception) -> JSONResponse:
        return RequestError(500, "the server failed; its log has the details").response()


def _explain_field(error: dict[str, Any]) -> str:
    """Describe the field of a request that is wrong, and what is expected."""
    field = ".".join(map(str, error["loc"][1:]))
    if error["type"] == "string_too_long":
        given, limit = len(error["input"]), error["ctx"]["max_length"]
        return f"{field}: the text has {given:,} characters; the limit is {limit:,}"
    if error["type"] == "value_error":
        return f"{field}: {error['ctx']['error']}"
    if error["type"] == "json_invalid" or not field:
        return f"the body is not a JSON object: {error['msg'].lower()}"
    return f"{field}: {error['msg'].lower()}"
