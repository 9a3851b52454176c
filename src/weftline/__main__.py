"""``python -m weftline`` is ``weftline``."""

from weftline.transports.cli.main import main

if __name__ == "__main__":
    main()
