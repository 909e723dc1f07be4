//! Progress output of the demonstration: bars on a terminal, plain lines elsewhere.

use dormer_proto::lock::Locked as _;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// Progress bars.
pub(crate) struct DemoProgress {
    bars: MultiProgress,
    joined: ProgressBar,
    upgraded: ProgressBar,
    now: ProgressBar,
    plain: bool,
    said: std::sync::Mutex<String>,
}

impl DemoProgress {
    /// Bars for this many machines. There are none with `quiet`, or if standard error is no terminal.
    pub(crate) fn new(machines: u64, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let hidden = quiet || !terminal;
        let target = if hidden {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bars = MultiProgress::with_draw_target(target);
        let bar = |name: &'static str| {
            let bar = bars.add(ProgressBar::new(machines));
            bar.set_style(style("{prefix:>9} {bar:40.cyan/blue} {pos:>4} of {len}"));
            bar.set_prefix(name);
            bar
        };
        let joined = bar("joined");
        let upgraded = bar("upgraded");
        let now = bars.add(ProgressBar::new_spinner());
        now.set_style(style("          {msg}"));
        Self {
            bars,
            joined,
            upgraded,
            now,
            plain: !quiet && !terminal,
            said: Default::default(),
        }
    }

    /// Prints a line for people.
    pub(crate) fn say(&self, line: &str) {
        if self.plain {
            eprintln!("{line}");
        } else {
            // A closed terminal does not stop the demonstration.
            let _ = self.bars.println(line);
        }
    }

    /// Updates the progress.
    pub(crate) fn at(&self, joined: usize, upgraded: usize, now: &str) {
        self.joined.set_position(joined as u64);
        self.upgraded.set_position(upgraded as u64);
        let mut said = self.said.locked();
        if *said != now {
            now.clone_into(&mut said);
            self.now.set_message(now.to_owned());
        }
    }

    /// Ends the bars and leaves them visible.
    pub(crate) fn end(&self) {
        self.joined.abandon();
        self.upgraded.abandon();
        self.now.finish_and_clear();
        if !self.bars.is_hidden() {
            // The cursor is at the end of the last bar.
            eprintln!();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
