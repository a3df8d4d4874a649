"""Print every package that nadpvi needs at the oldest version it declares, as constraints for pip."""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
for requirement in project["dependencies"]:
    declared = re.match(r"([\w-]+)>=([\d.]+)", requirement)
    if declared is None:
        sys.exit(f"{requirement} declares no oldest version.")
    sys.stdout.write("{}=={}\n".format(*declared.groups()))
