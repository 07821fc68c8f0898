"""The list of packages, which pyproject.toml cannot compute.

`backfill` is the folder of that name. The folder `kernels/` is installed as `backfill_kernels`: a package called
`kernels` would shadow the one of Hugging Face that transformers looks for, which is also why `kernels/` has no
`__init__.py` at its top.
"""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["backfill", "backfill.*"]),
        "backfill_kernels",
        *(f"backfill_kernels.{name}" for name in find_packages("kernels")),
    ],
    package_dir={"backfill_kernels": "kernels"},
)
