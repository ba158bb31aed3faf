"""The command `attendo`, also as `python -m attendo`."""

import signal


def main() -> None:
    """Run the command line; Ctrl-C before or after it ends the process without a traceback."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:  # not ignored, as in a background process
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from attendo.cli import main as run

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    finally:
        if is_usual:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
