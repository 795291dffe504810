#!/usr/bin/env python3
"""The checks find what they are there to find: each is run on a small tree with one fault."""
import contextlib
import io
import os
import tempfile
import unittest

import check_docs
import check_layers
import check_sizes
import sources

CONTRIBUTING = "in\nthis list: base, model (jinja, format), kv, engine, cli. It is checked.\n"


class Tree(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root, sources.ROOT = sources.ROOT, self.folder.name
        self.write("CONTRIBUTING.md", CONTRIBUTING)
        self.write("src/base/a.h", "#pragma once\n#include <string>\n")
        self.write("src/kv/k.h", '#pragma once\n#include "base/a.h"\n')

    def tearDown(self):
        sources.ROOT = self.root
        self.folder.cleanup()

    def write(self, path, text):
        path = os.path.join(sources.ROOT, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def run_check(self, check):
        """Exit status and what was printed."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = check.main()
        return status, out.getvalue()

    def assert_found(self, check, text):
        status, out = self.run_check(check)
        self.assertEqual(status, 1, out)
        self.assertIn(text, out)


class Layers(Tree):
    def test_a_clean_tree(self):
        self.assertEqual(self.run_check(check_layers)[0], 0)

    def test_an_include_upwards(self):
        self.write("src/base/b.cc", '#include "kv/k.h"\n')
        self.assert_found(check_layers, 'src/base/b.cc: includes "kv/k.h", but kv is below base')

    def test_an_include_of_nothing(self):
        self.write("src/kv/k.cc", '#include "base/gone.h"\n')
        self.assert_found(check_layers, "not under src/")

    def test_a_folder_without_a_place(self):
        self.write("src/extra/e.cc", "")
        self.assert_found(check_layers, "folder extra is not in CONTRIBUTING.md's order")

    def test_a_link_upwards(self):
        self.write("src/kv/CMakeLists.txt", "cleave_library(NAME kv DEPS cleave_engine)")
        self.write("src/engine/CMakeLists.txt", "cleave_library(NAME engine SOURCES e.cc)")
        self.assert_found(check_layers, "links cleave_engine of engine, which is below kv")

    def test_input_and_output_reached_through_a_header(self):
        self.write("src/base/a.h", "#pragma once\n#include <fstream>\n")
        self.assert_found(check_layers, "src/base/a.h: includes fstream, reached from kv")

    def test_a_clock_in_the_scheduler(self):
        self.write("src/engine/scheduler/s.cc", "auto t = std::chrono::steady_clock::now();\n")
        self.assert_found(check_layers, "uses ::now() in engine/scheduler, a pure room")


class Sizes(Tree):
    def function(self, lines):
        return "int F() {\n" + "  G();\n" * (lines - 2) + "}\n"

    def test_limits_are_allowed(self):
        self.write("src/kv/k.cc", self.function(70) + "// " + "x" * 97 + "\n")
        self.write("src/kv/k_avx2.cc", "// size: kernel\n" + self.function(120))
        self.assertEqual(self.run_check(check_sizes)[0], 0)

    def test_one_line_more_is_not(self):
        self.write("src/kv/k.cc", self.function(71))
        self.assert_found(check_sizes, "src/kv/k.cc:1: F has 71 lines, at most 70")

    def test_a_kernel_has_its_limit(self):
        self.write("src/kv/k_avx2.cc", "// size: kernel\n" + self.function(121))
        self.assert_found(check_sizes, "F has 121 lines, at most 120")

    def test_a_function_of_python(self):
        self.write("tools/t.py", "def f():\n" + "    g()\n" * 70)
        self.assert_found(check_sizes, "tools/t.py:1: f has 71 lines, at most 70")

    def test_files_and_columns(self):
        self.write("src/kv/long.h", "\n" * 251)
        self.write("src/kv/wide.cc", "x" * 101 + "\n")
        self.assert_found(check_sizes, "src/kv/long.h: 251 lines, at most 250")
        self.assert_found(check_sizes, "src/kv/wide.cc:1: 101 columns, at most 100")

    def test_a_class_with_too_many_methods(self):
        methods = "".join(f"  void Do{chr(65 + i)}();\n" for i in range(13))
        body = f" public:\n  C();\n{methods}  int size() const;\n"
        self.write("src/kv/c.h", f"class C {{\n{body}}};\n")
        self.assert_found(check_sizes, "class C has 13 public methods, at most 12")


class Docs(Tree):
    def test_what_is_there(self):
        self.write("src/kv/m.cc", '"vllm:num_requests_running" "/v1/models"')
        self.write("README.md", "`vllm:num_requests_running`, /v1/models, [a](src/kv/m.cc)\n")
        self.assertEqual(self.run_docs()[0], 0)

    def test_what_is_not(self):
        self.write("README.md", "`vllm:gone_total`, /v1/gone, [a](gone.md), `make gone`\n")
        status, out = self.run_docs()
        self.assertEqual(status, 1)
        for text in ("metric vllm:gone", "endpoint /v1/gone", "link to gone.md", "target gone"):
            self.assertIn(text, out)

    def test_flags_of_text(self):
        text = "Use `--port 8` with `curl --silent`:\n    cleave serve m.gguf --host ::\n"
        self.assertEqual(check_docs.named_flags(text), {"--port", "--host"})

    def run_docs(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = check_docs.main([])
        return status, out.getvalue()


if __name__ == "__main__":
    unittest.main()
