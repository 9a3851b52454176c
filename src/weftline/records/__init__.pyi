from weftline.public_records import *  # noqa: F403 - what it exports
