#!/usr/bin/env bash
# Files of a release. `.github/workflows/release.yml` calls the parts in this order.
#
#   deploy/release.sh sign HOST_PROGRAM           its signature for Windows, in the same file
#   deploy/release.sh archive FOLDER TARGET DORMER HOST_PROGRAM PERFORM_PROGRAM
#                                                 the programs, with dormer for the processor of TARGET
#   deploy/release.sh chart FOLDER HOST_PROGRAM   chart and install.yaml, which start this host program and no other
#   deploy/release.sh sums FOLDER                 SHA256SUMS of all files
#
# `sign` does nothing unless DORMER_SIGN_CERTIFICATE names a file: a certificate for code, PEM, with those between it and its
# authority. DORMER_SIGN_KEY names its private key (PEM), DORMER_SIGN_PASSWORD is the key's password, and DORMER_SIGN_TIMESTAMP
# the address of a time-stamp server (RFC 3161): with its stamp the signature outlives the certificate.
#
# Without a certificate equal inputs of one commit give equal files. `sums` signs where MINISIGN_KEY names a file; MINISIGN_PASSWORD is its password.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
usage() { sed -n 's/^#   //p' "$0"; exit 2; }
version=$(sed -n 's/^appVersion: *//p' "$root/deploy/chart/Chart.yaml")
when=$(git -C "$root" log -1 --format=%ct)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A folder of $work as a file.
packed() {
    tar --create --directory "$work" --sort=name --mtime="@$when" --mode=u=rwX,go=rX --owner=0 --group=0 --numeric-owner "$1" |
        gzip --no-name --best >"$2"
}

case ${1:-} in
sign)
    [[ $# = 2 ]] || usage
    [[ -n ${DORMER_SIGN_CERTIFICATE:-} ]] || exit 0
    key=${DORMER_SIGN_KEY:?names no private key for DORMER_SIGN_CERTIFICATE}
    command -v osslsigncode >/dev/null || { echo "no osslsigncode (Debian: osslsigncode)" >&2; exit 3; }
    words=(-certs "$DORMER_SIGN_CERTIFICATE" -key "$key" -h sha256 -n dormer)
    [[ -z ${DORMER_SIGN_PASSWORD:-} ]] || words+=(-readpass -)
    [[ -z ${DORMER_SIGN_TIMESTAMP:-} ]] || words+=(-ts "$DORMER_SIGN_TIMESTAMP")
    osslsigncode sign "${words[@]}" -in "$2" -out "$work/signed.exe" <<<"${DORMER_SIGN_PASSWORD:-}" >&2
    cat "$work/signed.exe" >"$2"
    ;;
archive)
    [[ $# = 6 ]] || usage
    name=dormer-$version-${3%%-*}
    mkdir -p "$2" "$work/$name"
    install -m 755 "$4" "$work/$name/dormer"
    install -m 644 "$5" "$work/$name/dormer-host.exe"
    # For `dormer preflight --self-test` alone; no image holds it.
    install -m 644 "$6" "$work/$name/dormer-host-perform.exe"
    install -m 644 "$root/LICENSE" "$root/README.md" "$work/$name"
    packed "$name" "$2/$name.tar.gz"
    ;;
chart)
    [[ $# = 3 ]] || usage
    mkdir -p "$2"
    cp -r "$root/deploy/chart" "$work/dormer"
    values=$work/dormer/values.yaml
    sum=$(sha256sum "$3" | cut -d' ' -f1)
    sed -i "s/^hostProgramSha256: \"\"\$/hostProgramSha256: \"$sum\"/" "$values"
    grep -q "^hostProgramSha256: \"$sum\"\$" "$values" || { echo "values.yaml has no hostProgramSha256" >&2; exit 1; }
    packed dormer "$2/dormer-chart-$version.tgz"
    sed "s/^\( *\)- --host-program=.*/&\n\1- --host-program-sha256=$sum/" "$root/deploy/install.yaml" >"$2/install.yaml"
    grep -q -- "- --host-program-sha256=$sum\$" "$2/install.yaml" || { echo "install.yaml has no --host-program" >&2; exit 1; }
    ;;
sums)
    [[ $# = 2 ]] || usage
    cd "$2"
    rm -f SHA256SUMS SHA256SUMS.minisig
    find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum >"$work/SHA256SUMS"
    cp "$work/SHA256SUMS" SHA256SUMS
    if [[ -n ${MINISIGN_KEY:-} ]]; then
        minisign -S -s "$MINISIGN_KEY" -m SHA256SUMS <<<"${MINISIGN_PASSWORD:-}"
    fi
    ;;
*) usage ;;
esac
