"""A recorder that also says which inbound runs it: `<pid>.from` holds the file of the package."""

from __future__ import annotations

import os

from recorder import Recorder  # type: ignore[import-not-found]  # it stands beside this file, which is on the path

import inbound
from inbound import Context


class Telling(Recorder):  # type: ignore[misc]  # see above
    """Records everything, and where inbound comes from."""

    def open(self, context: Context) -> None:
        super().open(context)
        with open(os.path.join(context.options.folder, f"{os.getpid()}.from"), "w", encoding="utf-8") as file:
            file.write(str(inbound.__file__))
