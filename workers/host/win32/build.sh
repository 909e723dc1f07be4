#!/usr/bin/env bash
# Builds dormer-host.exe for x86_64-pc-windows-gnu into a folder, with dormer-host-perform.exe, which the contract suite
# runs: the same way in the continuous integration, for the tests and for a release. Exits with 3 where a tool is
# missing, and names it.
#
#   workers/host/win32/build.sh FOLDER    builds and prints size and SHA-256
#   workers/host/win32/build.sh --clippy  clippy and documentation for the Windows target
set -euo pipefail
[[ $# = 1 ]] || { sed -n 's/^#   //p' "$0"; exit 2; }
caller=$PWD
root=$(cd "$(dirname "$0")/../../.." && pwd)
cd "$root"
target=x86_64-pc-windows-gnu
missing() { echo "$1" >&2; exit 3; }

for tool in x86_64-w64-mingw32-gcc x86_64-w64-mingw32-windres x86_64-w64-mingw32-dlltool; do
    command -v "$tool" >/dev/null || missing "no $tool (Debian: gcc-mingw-w64-x86-64-win32)"
done
# What a cargo above set is not for this build.
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER CARGO_BUILD_TARGET
sysroot=$(rustc --print sysroot)
[[ -d $sysroot/lib/rustlib/$target/lib ]] || missing "no Rust library for $target (rustup target add $target)"

# A folder of its own: a build of other packages that goes on at the same time holds no lock on it.
folder=${CARGO_TARGET_DIR:-target}/windows
if [[ $1 = --clippy ]]; then
    cargo clippy --locked --package dormer-host-win32 --all-targets --target "$target" --target-dir "$folder" -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --locked --quiet --package dormer-host-win32 --lib --no-deps \
        --document-private-items --target "$target" --target-dir "$folder"
    exit
fi

into=$(cd "$caller" && mkdir -p "$1" && cd "$1" && pwd)
# Where somebody builds is not in the program.
home=${CARGO_HOME:-$HOME/.cargo}
flags=(
    "--remap-path-prefix=$root=dormer"
    "--remap-path-prefix=$home=cargo"
    "--remap-path-prefix=$sysroot=rust"
)
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${flags[*]}") \
    cargo build --locked --quiet --package dormer-host-win32 --bins --profile host --target "$target" --target-dir "$folder"
for program in dormer-host.exe dormer-host-perform.exe; do
    install -m 755 "$folder/$target/host/$program" "$into/$program"
done
cd "$into"
stat -c '%s bytes  %n' dormer-host.exe
sha256sum dormer-host.exe
