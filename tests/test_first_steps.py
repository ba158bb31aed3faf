"""The first ten minutes: every command of the README and the demo works."""

import ast
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import tomllib
import urllib.request
from itertools import islice
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from attendo.config import load_recipe
from attendo.data.builtin import sentences
from attendo.data.readers import Pair

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PACKAGES = Path(sysconfig.get_paths()["purelib"])

NOT_RUN = {"make test": "it would run this test again; `make -n` must know it"}
"""Commands of README that are not run, and why."""

SHORT = "--set decoding.max_extra=2"
"""An option for models that have learned nothing, not even to end."""

QUICK = f"--set training.steps=8 --set data.builtin=2000 --set data.hold_out=10 {SHORT}"
"""Options that make the demo quick; what it prints stays the same."""


def blocks(language: str) -> list[str]:
    """Return the code blocks of README in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Return the commands in the code blocks of README."""
    lines = "".join(blocks("sh")).splitlines()
    return [re.sub(r"\s+# .*", "", line) for line in lines if line.strip()]


def test_readme_is_short_and_every_block_is_a_language_that_is_tested():
    lines = README.splitlines()
    assert len(lines) < 150
    assert max(map(len, lines)) <= 120
    fences = re.findall(r"^```(.*)$", README, re.MULTILINE)
    assert set(fences[::2]) == {"sh", "python"}
    assert set(fences[1::2]) == {""}
    assert set(NOT_RUN) < set(commands())


def test_every_link_of_readme_leads_somewhere():
    for target in re.findall(r"\]\(([^)#]+)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target


@pytest.mark.slow
def test_readme_describes_the_built_in_corpus():
    n_pairs = load_recipe("demo").data.builtin
    # In another process, which has no checks: they take most of the time.
    program = (
        "import re, sys; from itertools import islice; from attendo.data.builtin import sentences\n"
        "words = [set(), set()]\n"
        "for pair in islice(sentences(seed=0), int(sys.argv[1])):\n"
        "    for found, text in zip(words, pair):\n"
        "        found.update(re.findall(r'\\w+', text.lower()))\n"
        "print(*map(len, words))"
    )
    counted = subprocess.run(
        [sys.executable, "-c", program, str(n_pairs)], capture_output=True, text=True, check=True
    )
    n_english, n_german = counted.stdout.split()
    said = " ".join(README.split())
    assert f"{n_pairs:,} English-German sentence pairs generated from a small grammar" in said
    assert f"{n_english} different English and {n_german} different German words" in said


def requirements(extra: str = "") -> set[str]:
    """Return the packages that attendo, with an extra, requires."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: set[str] = set()
    for text in project["dependencies"] + project["optional-dependencies"].get(extra, []):
        one = Requirement(text)
        found.add(one.name.replace("-", "_"))
        for inner in one.extras if one.name == "attendo" else ():
            found |= requirements(inner)
    return found


def test_the_installation_that_readme_shows_has_all_that_the_package_imports():
    imported = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(str(node.module).partition(".")[0])
            elif isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
    optional = {"triton"}  # comes with torch where there are GPUs; its absence is handled
    packages = {"PIL": "pillow", "google": "protobuf"}
    third_party = {packages.get(name, name) for name in imported - optional}
    assert "pip install --constraint constraints.txt '.[all]'" in commands()
    assert third_party - set(sys.stdlib_module_names) - requirements("all") == set()
    assert {"fastapi", "uvicorn", "scipy"} <= requirements("all")


def make_environment(folder: Path, without: str) -> Path:
    """Make a virtual environment that has all packages of this one but one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [target] = folder.glob("lib/python*/site-packages")
    for path in PACKAGES.iterdir():
        if re.split(r"[-.]", path.name)[0] not in (without, "__editable__"):
            (target / path.name).symlink_to(path)
    (target / "attendo.pth").write_text(f"{ROOT / 'src'}\n")
    return folder / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("scipy", ["look", "RUN", "The dog sleeps.", "--out", "page.html"]),
        ("fastapi", ["serve", "RUN", "--port", "0"]),
        ("uvicorn", ["serve", "RUN", "--port", "0"]),
        ("tensorboard", ["train", "tiny", "--out", "x", "--set", "data.builtin=400"]),
    ],
)
def test_a_missing_package_is_reported_with_the_command_that_installs_it(
    package, words, trained, tmp_path
):
    python = make_environment(tmp_path / ".venv", without=package)
    words = [str(trained) if word == "RUN" else word for word in words]
    if package == "tensorboard":
        words += ["--set", "training.tensorboard=true", "--set", "training.steps=1"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), "-m", "attendo", *words],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2, done.stderr
    assert last.startswith("error: ")
    assert package in last
    assert f".venv/bin/python -m pip install {package}" in last
    assert "Traceback" not in done.stderr


class Shell:
    """A bash in which commands are typed one after the other."""

    MARK = "exit code of the command:"

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder, env=environment, text=True, encoding="utf-8", start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def type(self, command: str) -> tuple[int, str]:
        """Run a command as typed; returns its exit code and all that it printed."""
        self.process.stdin.write(
            f"{{ {command}\n}} < /dev/null\nprintf '\\n{self.MARK} %s\\n' $?\n"
        )
        self.process.stdin.flush()
        printed = []
        for line in self.process.stdout:
            if line.startswith(self.MARK):
                return int(line.split()[-1]), "".join(printed)
            printed.append(line)
        raise AssertionError(f"the shell ended in {command!r}: {''.join(printed)}")

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def clone(tmp_path) -> Path:
    """Copy what a clone would have, and give it an environment that downloads nothing again."""
    folder = tmp_path / "attendo"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    subprocess.run([sys.executable, "-m", "venv", str(folder / ".venv")], check=True)
    [target] = folder.glob(".venv/lib/python*/site-packages")
    for path in target.glob("setuptools*"):  # that of Python 3.11 is too old to build with
        shutil.rmtree(path)
    (target / "others.pth").write_text(f"{PACKAGES}\n")
    write_samples(folder)
    return folder


def write_samples(folder: Path) -> None:
    """Write the files that README's commands read: short sentences, so that training is quick."""
    some = (Pair(one.source, one.target) for one in sentences(seed=1))
    short = (pair for pair in some if len(pair.source.split()) < 6)
    pairs = list(dict.fromkeys(islice(short, 60)))
    source = "".join(f"{pair.source}\n" for pair in pairs)
    target = "".join(f"{pair.target}\n" for pair in pairs)
    both = "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)
    for name in ("a.en", "your.en", "test.en", "news.en"):
        (folder / name).write_text(source, encoding="utf-8")
    for name in ("a.de", "your.de", "test.de"):
        (folder / name).write_text(target, encoding="utf-8")
    for name in ("legal.tsv", "all.tsv"):
        (folder / name).write_text(both, encoding="utf-8")
    book = "\n".join(pair.source for pair in islice(sentences(seed=2), 600))
    for name in ("book.txt", "texts.txt"):
        (folder / name).write_text(book, encoding="utf-8")
    labelled = (f"{pair.source}\tEnglish\n{pair.target}\tGerman\n" for pair in pairs)
    (folder / "reviews.tsv").write_text("".join(labelled), encoding="utf-8")


@pytest.fixture
def shell(clone, tmp_path):
    """Open a shell in the clone, with no attendo on its PATH and no active environment."""
    folders = os.environ["PATH"].split(os.pathsep)
    environment = {
        "PATH": os.pathsep.join(one for one in folders if not (Path(one) / "attendo").exists()),
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "PYTHON": os.path.realpath(sys.executable),
        "PIP_NO_BUILD_ISOLATION": "0",  # sic: pip reads it the other way round
        "DEMO_OPTIONS": QUICK,
        **{name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ},
    }
    opened = Shell(clone, environment)
    yield opened
    opened.close()


def open_page(shell: Shell, command: str) -> None:
    """Start a server as typed, open the address that it prints, and stop it."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", 8000)) == 0:
            command += " --port 0"  # the port may be in use
    log = shell.folder / "serve.log"
    log.unlink(missing_ok=True)  # of an earlier server
    shell.type(f"{command} > serve.log 2>&1 &")
    for _ in range(600):
        said = log.read_text(encoding="utf-8") if log.exists() else ""
        if address := re.search(r"http://[\w.:]+", said):
            break
        time.sleep(0.2)
    assert address, said
    with urllib.request.urlopen(address[0], timeout=60) as response:
        assert response.status == 200
        assert b"<html" in response.read()
    shell.type("kill %%; wait")


def run_typed(shell: Shell, command: str) -> str:
    """Run a command of a newcomer and return what it prints; it must succeed."""
    if command in NOT_RUN:
        command = command.replace("make ", "make -n ")
    if re.match("attendo train (masked-language-model|language-model|classification)", command):
        command += " --set training.steps=3 --set training.batch_tokens=1024"
    if "attendo serve" in command:
        open_page(shell, command)
        return ""
    if "--budget-seconds" in command:
        command = re.sub(r"(--budget-seconds) \d+", r"\1 2", command)
        command += f" --set data.builtin=2000 --set data.hold_out=10 {SHORT}"
    if "attendo train" in command:
        command += f" --set training.steps=8 --set training.validate_every=4 {SHORT}"
    begin = time.monotonic()
    code, printed = shell.type(command)
    print(f"{time.monotonic() - begin:6.1f} s  {command}")
    assert code == 0, f"{command}\n{printed}"
    assert "Traceback" not in printed, f"{command}\n{printed}"
    return printed


@pytest.mark.slow
def test_every_command_that_readme_and_the_demo_print_works_as_typed(shell):
    assert shell.type("command -v attendo")[0] != 0
    first, *others = commands()
    printed = run_typed(shell, first)
    advised = re.findall(r"^  (\S*attendo .*|source .*)$", printed, re.MULTILINE)
    assert len(advised) > 5
    assert all(command.startswith((".venv/bin/attendo ", "source ")) for command in advised)
    for command in advised:
        assert shell.type("command -v attendo")[0] != 0
        run_typed(shell, command)
    code, place = shell.type("command -v attendo")
    assert (code, place.strip()) == (0, str(shell.folder / ".venv/bin/attendo"))
    shell.type("deactivate")
    for command in others:
        run_typed(shell, command)
    for block in blocks("python"):
        (shell.folder / "example.py").write_text(block, encoding="utf-8")
        run_typed(shell, "python example.py")
    for name in ("news.de", "page.html", "decoding.gif", "report/report.html", "mine.toml"):
        assert (shell.folder / name).stat().st_size > 20, name
