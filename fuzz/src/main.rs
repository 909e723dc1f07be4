//! The decoder of this program's name, under libFuzzer.

#![no_main]

use std::sync::LazyLock;

static DECODER: LazyLock<dormer_decoders::Decoder> =
    LazyLock::new(|| dormer_decoders::named(env!("CARGO_BIN_NAME")));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (DECODER.decode)(bytes));
