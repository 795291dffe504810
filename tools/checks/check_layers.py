#!/usr/bin/env python3
"""Arrows point down: a folder of src/ includes and links only itself and the folders above it.

usage: check_layers.py

The order is CONTRIBUTING.md's. Rooms that decide (kv, split, plan, the scheduler, the
router's policies) and every header they reach must not open files, sockets or threads, nor read a
clock or a random device.
"""

import os
import re
import sys

import sources

ORDER_PATTERN = re.compile(r"this list: (.*?)\.\s", re.S)
INCLUDE = re.compile(r'^\s*#include\s+(?:"([^"]+)"|<([^>]+)>)', re.M)
PURE_ROOMS = ("kv", "split", "plan", "engine/scheduler", "route/policy")
IMPURE_HEADERS = re.compile(
    r"fstream|iostream|filesystem|thread|mutex|condition_variable|future|semaphore"
    r"|latch|barrier|random|ctime|time\.h|unistd\.h|fcntl\.h|poll\.h|signal\.h|sys/.*|netinet/.*"
    r"|arpa/.*|netdb\.h|boost/asio.*|boost/beast.*|spdlog/.*"
    r"|base/(?:mapped_file|host|bounded_queue)\.h"
)
IMPURE_CALLS = re.compile(
    r"::now\(\)|\brandom_device\b|\bgetenv\(|\bstd::(?:cout|cerr)\b|\bprintf\("
)


def folder_order():
    """CONTRIBUTING.md's list, without the rooms it names in brackets."""
    text = ORDER_PATTERN.search(sources.read("CONTRIBUTING.md"))
    if not text:
        sys.exit("check_layers: CONTRIBUTING.md no longer has 'this list: a, b, c.'")
    return re.sub(r"\([^)]*\)", "", text[1]).replace("\n", " ").replace(" ", "").split(",")


def folder_of(path):
    return path.split("/")[1]


def check_includes(order, paths):
    problems = []
    for path in paths:
        own = folder_of(path)
        if own not in order:
            problems.append(f"{path}: folder {own} is not in CONTRIBUTING.md's order")
            continue
        for quoted, _ in INCLUDE.findall(sources.read(path)):
            if not quoted:
                continue
            used = quoted.split("/")[0]
            if not os.path.exists(os.path.join(sources.ROOT, "src", quoted)):
                problems.append(f'{path}: includes "{quoted}", which is not under src/')
            elif used not in order or order.index(used) > order.index(own):
                problems.append(f'{path}: includes "{quoted}", but {used} is below {own}')
    return problems


def cmake_targets(paths):
    """Library target -> folder that declares it."""
    pattern = re.compile(r"cleave_library\(\s*NAME\s+(\w+)")
    return {
        f"cleave_{name}": folder_of(path)
        for path in paths
        for name in pattern.findall(sources.read(path))
    }


def check_links(order, paths):
    owners, problems = cmake_targets(paths), []
    for path in paths:
        own = folder_of(path)
        if own not in order:
            continue
        for target in sorted(set(re.findall(r"\bcleave_\w+", sources.read(path))) & set(owners)):
            if order.index(owners[target]) > order.index(own):
                problems.append(f"{path}: links {target} of {owners[target]}, which is below {own}")
    return problems


def reached(path, seen):
    """path and every project header it includes, directly or not."""
    if path in seen or not os.path.exists(os.path.join(sources.ROOT, path)):
        return seen
    seen.add(path)
    for quoted, _ in INCLUDE.findall(sources.read(path)):
        if quoted:
            reached(f"src/{quoted}", seen)
    return seen


def is_program(path):
    """Tests and benchmarks may print and measure."""
    return re.search(r"_(test|bench)\.cc$", path) is not None


def check_purity(paths):
    problems = []
    for room in PURE_ROOMS:
        own = [p for p in paths if p.startswith(f"src/{room}/") and not is_program(p)]
        for path in sorted(set().union(*(reached(p, set()) for p in own)) if own else []):
            text = sources.read(path)
            for quoted, system in INCLUDE.findall(text):
                if IMPURE_HEADERS.fullmatch(quoted or system):
                    used = quoted or system
                    problems.append(f"{path}: includes {used}, reached from {room}, a pure room")
            if path in own and (call := IMPURE_CALLS.search(text)):
                problems.append(f"{path}: uses {call[0]} in {room}, a pure room")
    return problems


def main():
    order = folder_order()
    paths = sources.files(".h", ".cc", folders=["src"])
    cmake = sources.files("CMakeLists.txt", ".cmake", folders=["src"])
    problems = check_includes(order, paths) + check_links(order, cmake) + check_purity(paths)
    return sources.report("layers", f"{len(paths)} files, {len(cmake)} build files", problems)


if __name__ == "__main__":
    sys.exit(main())
