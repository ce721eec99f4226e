#!/usr/bin/env bash
# make bench: the Go benchmarks, then the tables of docs/benchmarks.md.
#
#   internal/bench/run.sh            everything; about ten minutes on a machine that is calm
#   internal/bench/run.sh -only moving    the table of downloads and uploads alone; or job, the other one
#   internal/bench/run.sh -smoke     whether it runs; the document stays as it is
#   internal/bench/run.sh -only ingest -cpuprofile /tmp/ingest.prof     one part, printed only
#
# What is written goes below $TMPDIR: put that on the disk that is to be measured.
set -euo pipefail
cd "$(dirname "$0")/../.."
GO=${GO:-go}

if ! command -v curl >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo 'installing curl, which the downloads are compared with' >&2
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq curl >/dev/null
  else
    echo 'curl is not installed: its row is left out' >&2
  fi
fi

if ! command -v nginx >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo 'installing nginx, which the downloads are compared with; it is not started as a service' >&2
    policy=/usr/sbin/policy-rc.d made=
    if [ ! -e "$policy" ]; then
      made=1
      printf '#!/bin/sh\nexit 101\n' >"$policy"
      chmod +x "$policy"
    fi
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nginx >/dev/null; } ||
      echo 'nginx could not be installed: its rows are left out' >&2
    [ -z "$made" ] || rm -f "$policy"
  else
    echo 'nginx is not installed: its rows are left out' >&2
  fi
fi

# A table of the document is only written by a run of all its parts.
doc=(-doc docs/benchmarks.md)
if [ "$*" = '-only job' ] || [ "$*" = '-only moving' ]; then
  :
elif [ $# -gt 0 ]; then
  doc=()
else
  packages=$(grep -rlE '^func Benchmark' --include='*_test.go' . | xargs -n1 dirname | sort -u)
  # shellcheck disable=SC2086
  $GO test -run '^$' -bench . -benchtime "${BENCHTIME:-300ms}" -p 1 $packages
fi

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
$GO build -o "$bin/bench" ./internal/bench
programs=()
for p in s3gateway s3bench; do # modules of their own
  if (cd "internal/$p" && $GO build -o "$bin/$p" .); then
    programs+=("-$p" "$bin/$p")
  else
    echo "internal/$p cannot be built: the rows of uploads are left out" >&2
  fi
done
"$bin/bench" "${programs[@]}" "${doc[@]}" "$@"
