//! Calibration: present speed of this computer's disk and processor, which changes by the hour.

use serde::Serialize;
use std::{
    fs::File,
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

/// Duration of each loop.
const LOOP: Duration = Duration::from_millis(500);

/// Present speed of the computer. Comparisons between benchmark runs use ratios to these values.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Calibration {
    /// Appends of 4 KiB with `fdatasync` per second, one at a time.
    pub(super) fdatasync_per_s: f64,
    /// Rounds of a fixed hash loop per second on one processor.
    pub(super) cpu_loops_per_s: f64,
}

/// Measures in the file system of `folder`.
pub(super) fn calibrate(folder: &Path) -> std::io::Result<Calibration> {
    Ok(Calibration {
        fdatasync_per_s: syncs(folder)?,
        cpu_loops_per_s: loops(),
    })
}

fn syncs(folder: &Path) -> std::io::Result<f64> {
    let path = folder.join("calibration");
    let mut file = File::create(&path)?;
    let start = Instant::now();
    let mut count = 0u32;
    while start.elapsed() < LOOP {
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        count += 1;
    }
    let rate = f64::from(count) / start.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(rate)
}

fn loops() -> f64 {
    let block = [3u8; 4096];
    let start = Instant::now();
    let mut count = 0u32;
    let mut sink = 0u64;
    while start.elapsed() < LOOP {
        for _ in 0..100 {
            sink ^= dormer_proto::id::hash64(std::hint::black_box(&block));
        }
        count += 1;
    }
    std::hint::black_box(sink);
    f64::from(count) / start.elapsed().as_secs_f64()
}
