#!/usr/bin/env bash
# Builds dormer's image: deploy/image/build.sh TAG [oci:FOLDER|oci-archive:FILE]
#
# It needs buildah, readelf, Rust with the target, musl-gcc (musl-tools), and what workers/host/win32/build.sh needs. One
# commit gives one digest: times are those of the commit. A host program that is signed here differs each time: it is in the
# image under /usr/share/dormer, and deploy/olm/release.sh needs that file. With a second argument the image is written there
# as well.
#
#   DORMER_TARGET   x86_64-unknown-linux-musl [default] or aarch64-unknown-linux-musl
#   DORMER_PROGRAM, DORMER_HOST_PROGRAM   programs that are already built, such as signed ones
#   DORMER_CA                             the authorities [default: those of this computer]
#   DORMER_SIGN_CERTIFICATE and so on     signs the host program that is built here (deploy/release.sh)
set -euo pipefail
cd "$(dirname "$0")/../.."
tag=${1:?usage: deploy/image/build.sh TAG [oci:FOLDER|oci-archive:FILE]}
target=${DORMER_TARGET:-x86_64-unknown-linux-musl}
case $target in
    x86_64-*) arch=amd64 ;;
    aarch64-*) arch=arm64 ;;
    *) echo "DORMER_TARGET=$target: no image is made for it" >&2; exit 2 ;;
esac
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
# The image has no C library. One that the program would load is absent, and glibc in the program itself could resolve no name:
# it loads the modules of nsswitch.conf. musl does neither.
linked=$(LC_ALL=C readelf -lnW "$context/dormer")
if [[ $linked == *INTERP* || $linked == *NT_GNU_ABI_TAG* ]]; then
    echo "${DORMER_PROGRAM:-$target}: this program needs the C library of its system, and the image has none." \
        "Build it for the target $target" >&2
    exit 2
fi
if [[ -n ${DORMER_HOST_PROGRAM:-} ]]; then
    cp "$DORMER_HOST_PROGRAM" "$context/dormer-host.exe"
else
    workers/host/win32/build.sh "$context/host"
    mv "$context/host/dormer-host.exe" "$context/dormer-host.exe"
    deploy/release.sh sign "$context/dormer-host.exe"
    rm -r "$context/host"
fi
cp "${DORMER_CA:-/etc/ssl/certs/ca-certificates.crt}" "$context/ca-certificates.crt"

when=$(git log -1 --format=%ct)
find "$context" -exec touch --date="@$when" {} +
buildah build --isolation chroot --arch "$arch" --timestamp "$when" --format oci \
    --file deploy/image/Containerfile --tag "$tag" "$context"
if [[ -n ${2:-} ]]; then
    buildah push --quiet "$tag" "$2"
fi
