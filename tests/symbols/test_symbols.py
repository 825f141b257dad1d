# SPDX-License-Identifier: Apache-2.0
"""Names of random text addresses in large and small programs, judged by judge.py.

10,000 addresses in each file with --long, and libLLVM and node too; else 2,000. FLYBALL_BUILD names the
build (build/); counts are printed, and kept in FLYBALL_JUDGED if that names a file.
"""

import lzma
import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("FLYBALL_BUILD", HERE.parents[1] / "build")).resolve()
LONG = bool(os.environ.get("FLYBALL_LONG"))

RUST = """
use std::collections::HashMap;
fn weigh<T: AsRef<str>>(words: &[T]) -> HashMap<String, usize> {
    let mut seen = HashMap::new();
    for word in words { *seen.entry(word.as_ref().to_lowercase()).or_insert(0) += word.as_ref().len(); }
    seen
}
fn main() {
    let words: Vec<String> = std::env::args().collect();
    let mut pairs: Vec<_> = weigh(&words).into_iter().collect();
    pairs.sort_by(|a, b| b.1.cmp(&a.1));
    println!("{:?} {:?}", pairs, std::thread::spawn(|| 7).join());
}
"""

GO = """
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
)

type pair[K comparable, V any] struct {
	Key   K
	Value V
}

func weigh[K comparable, V any](of map[K]V) (out []pair[K, V]) {
	for k, v := range of {
		out = append(out, pair[K, V]{k, v})
	}
	return
}

func main() {
	text, _ := json.Marshal(weigh(map[string]int{"a": 1}))
	fmt.Println(string(text), weigh(map[int]string{1: "a"}))
	if len(os.Args) > 1 {
		fmt.Println(http.Get(os.Args[1]))
	}
}
"""


@pytest.fixture(scope="session")
def tool():
    """name-addresses, which is built on demand."""
    name = BUILD / "tests" / "symbols" / "name-addresses"
    subprocess.run(["ninja", "-C", BUILD, "tests/symbols/name-addresses"], check=True, stdout=subprocess.DEVNULL)
    return name


def need(program):
    path = shutil.which(program)
    if not path:
        pytest.skip(f"no {program} on this machine")
    return path


def judge(tool, *args):
    """Runs judge.py; its counts."""
    done = subprocess.run([HERE / "judge.py", "--tool", tool, "--packed", "--show", "3", "-n", "10000" if LONG else "2000",
                           *map(str, args)], capture_output=True, text=True, check=False)
    print(done.stdout)
    if os.environ.get("FLYBALL_JUDGED"):
        with open(os.environ["FLYBALL_JUDGED"], "a", encoding="utf-8") as kept:
            kept.writelines(line + "\n" for line in done.stdout.splitlines() if not line.startswith("  "))
    assert done.returncode == 0 and "\nok " in "\n" + done.stdout, done.stdout + done.stderr[-2000:]


def library(pattern):
    found = sorted(Path("/usr/lib/x86_64-linux-gnu").glob(pattern))
    if not found:
        pytest.skip(f"no {pattern} on this machine")
    return found[0].resolve()


@pytest.mark.parametrize("debug", ["auto", "none"])
@pytest.mark.parametrize("pattern", ["libc.so.6", "libstdc++.so.6"])
def test_libraries(pattern, debug, tool):
    """With the separate debug file where the machine has it, and as it is shipped."""
    judge(tool, "--judge", "all", "--debug", debug, library(pattern))


@pytest.mark.parametrize("program", ["bash", "git"])
def test_programs(program, tool):
    judge(tool, "--judge", "all", "--debug", "none", need(program))


@pytest.mark.long
def test_lib_llvm(tool):
    judge(tool, "--judge", "all", "--debug", "none", library("libLLVM-19.so*"))


@pytest.mark.long
@pytest.mark.parametrize("stripped", [False, True])
def test_node(stripped, tool, tmp_path):
    path = need("node")
    if stripped:
        path = shutil.copy(path, tmp_path / "node")
        subprocess.run(["strip", path], check=True)
    judge(tool, "--judge", "all", "--debug", "none", path)


@pytest.fixture(params=["v0", "legacy"])
def rust(request, tmp_path):
    rustc = need("rustc")
    (tmp_path / "weigh.rs").write_text(RUST)
    # Newer compilers allow the legacy names only as an unstable choice; older ones have them by default.
    for flags in (["-C", f"symbol-mangling-version={request.param}"],
                  ["-Z", "unstable-options", "-C", f"symbol-mangling-version={request.param}"]):
        done = subprocess.run([rustc, "-O", *flags, "-o", tmp_path / "weigh", tmp_path / "weigh.rs"],
                              env={**os.environ, "RUSTC_BOOTSTRAP": "1"}, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return tmp_path / "weigh"
    return pytest.fail(done.stderr)


def test_rust(rust, tool):
    judge(tool, "--judge", "all", "--debug", "none", rust)


def test_rust_stripped_with_minidebug(rust, tool, tmp_path):
    """As Fedora ships programs: .symtab packed into .gnu_debugdata. The judges read what it was before."""
    mini = tmp_path / "mini"
    subprocess.run(["objcopy", "-S", "--keep-file-symbols", rust, tmp_path / "stripped"], check=True)
    subprocess.run(["objcopy", "--only-keep-debug", rust, mini], check=True)
    subprocess.run(["strip", "-g", mini], check=True)
    (tmp_path / "mini.xz").write_bytes(lzma.compress(mini.read_bytes()))
    subprocess.run(["objcopy", f"--add-section=.gnu_debugdata={tmp_path / 'mini.xz'}", tmp_path / "stripped"], check=True)
    judge(tool, "--judge", "all", "--debug", "none", "--twin", rust, tmp_path / "stripped")


@pytest.mark.parametrize("stripped", [False, True])
def test_go(stripped, tool, tmp_path):
    """Names and lines; the judge of the stripped one reads its twin."""
    go = need("go")
    (tmp_path / "weigh.go").write_text(GO)
    for name, flags in (("weigh", ""), ("stripped", "-s -w")):
        subprocess.run([go, "build", "-trimpath", f"-ldflags=-buildid=x {flags}", "-o", tmp_path / name, tmp_path / "weigh.go"],
                       check=True, env={**os.environ, "GO111MODULE": "off", "GOFLAGS": "", "CGO_ENABLED": "0"})
    if stripped:
        judge(tool, "--judge", "go", "--twin", tmp_path / "weigh", tmp_path / "stripped")
    else:
        judge(tool, "--judge", "go", tmp_path / "weigh")
