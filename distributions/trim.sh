#!/bin/sh
# Deletes what no bundle needs of the packages beside soc-stages-runtime: tests, headers, sources and types.
# usage: sh trim.sh .venv/lib/python3*/site-packages
set -e
cd "$1"
rm -rf tvm_ffi/include tvm_ffi/3rdparty tvm_ffi/src tvm_ffi/cython tvm_ffi/stub
[ -d numpy ] || exit 0
rm -rf numpy/f2py numpy/distutils numpy/_core/include numpy/_core/lib numpy/random/lib
rm -f numpy/_core/_simd.*.so numpy/_core/*_tests.*.so
find numpy -name tests -prune -exec rm -r {} +
find numpy -name '*.pyi' -delete
