#!/usr/bin/env bash
# Builds dormer's image: deploy/image/build.sh TAG [oci:FOLDER]
#
# It needs buildah, Rust with the target x86_64-unknown-linux-musl, musl-gcc (musl-tools), and what
# workers/host/win32/build.sh needs. One commit gives one digest: times are those of the commit. With oci:FOLDER the
# image is written there as well.
#
#   DORMER_PROGRAM, DORMER_HOST_PROGRAM   programs that are already built, such as signed ones
#   DORMER_CA                             the authorities [default: those of this computer]
set -euo pipefail
cd "$(dirname "$0")/../.."
tag=${1:?usage: deploy/image/build.sh TAG [oci:FOLDER]}
target=x86_64-unknown-linux-musl
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT

if [[ -n ${DORMER_PROGRAM:-} ]]; then
    cp "$DORMER_PROGRAM" "$context/dormer"
else
    DORMER_COMMIT=$(git rev-parse HEAD)
    export DORMER_COMMIT
    # No path of this computer goes into the program.
    export RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$PWD=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
    cargo build --locked --profile dist --target "$target" --no-default-features --features nats-creds
    cp "${CARGO_TARGET_DIR:-target}/$target/dist/dormer" "$context/dormer"
    unset RUSTFLAGS
fi
if [[ -n ${DORMER_HOST_PROGRAM:-} ]]; then
    cp "$DORMER_HOST_PROGRAM" "$context/dormer-host.exe"
else
    workers/host/win32/build.sh "$context/host"
    mv "$context/host/dormer-host.exe" "$context/dormer-host.exe"
    rm -r "$context/host"
fi
cp "${DORMER_CA:-/etc/ssl/certs/ca-certificates.crt}" "$context/ca-certificates.crt"

when=$(git log -1 --format=%ct)
find "$context" -exec touch --date="@$when" {} +
buildah build --isolation chroot --timestamp "$when" --format oci \
    --file deploy/image/Containerfile --tag "$tag" "$context"
if [[ -n ${2:-} ]]; then
    buildah push --quiet "$tag" "$2"
fi
