"""The project's own files, for the checks beside this."""

import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCE_FOLDERS = ("src", "tests", "tools")
SKIPPED_FOLDERS = {"__pycache__", "data", "testdata"}


def files(*suffixes, folders=SOURCE_FOLDERS):
    """Paths relative to the root, sorted."""
    found = []
    for folder in folders:
        for where, children, names in os.walk(os.path.join(ROOT, folder)):
            children[:] = sorted(set(children) - SKIPPED_FOLDERS)
            found += [os.path.join(where, name) for name in names if name.endswith(suffixes)]
    return sorted(os.path.relpath(path, ROOT) for path in found)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def report(check, checked, problems):
    """Prints the outcome; returns the exit status."""
    for problem in problems:
        print(problem)
    if problems:
        print(f"{check}: failed, {len(problems)} problems in {checked}")
        return 1
    print(f"{check}: OK, {checked}")
    return 0
