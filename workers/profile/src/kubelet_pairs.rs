//! Settings that a kubelet compares with each other when it starts: a pair that contradicts itself ends it.
//!
//! The rules are those of `ValidateKubeletConfiguration` in kubernetes v1.33.13 to v1.37.2,
//! `pkg/kubelet/apis/config/validation/validation.go`, with the defaults of `v1beta1/defaults.go`.

use serde_json::Value;

use crate::variables::seconds;

/// Two settings that a kubelet reads together.
pub(crate) type Pair = [&'static str; 2];

/// A pair that contradicts itself, with the reason.
pub(crate) type Contradiction = (Pair, String);

/// How long a shutdown waits for all pods, and how much of that is for critical ones.
pub(crate) const PERIODS: Pair = ["shutdownGracePeriod", "shutdownGracePeriodCriticalPods"];

const GC_THRESHOLDS: Pair = ["imageGCHighThresholdPercent", "imageGCLowThresholdPercent"];
const GC_AGES: Pair = ["imageMaximumGCAge", "imageMinimumGCAge"];
/// The one replaces the other, and each of the two periods has to be 0 then.
const BY_PRIORITY: Pair = ["shutdownGracePeriodByPodPriority", PERIODS[0]];
const BY_PRIORITY_CRITICAL: Pair = ["shutdownGracePeriodByPodPriority", PERIODS[1]];
const PULLS: Pair = ["serializeImagePulls", "maxParallelImagePulls"];

/// Reason against a pair, if there is one.
type Rule = fn(PairValues<'_>) -> Option<String>;

/// Pairs that contradict themselves, each with the reason.
pub(crate) fn contradictions<'v>(
    setting: impl Fn(&str) -> Option<&'v Value>,
) -> Vec<Contradiction> {
    let pairs: [(Pair, Rule); 6] = [
        (PERIODS, periods),
        (BY_PRIORITY, by_priority),
        (BY_PRIORITY_CRITICAL, by_priority),
        (GC_THRESHOLDS, thresholds),
        (GC_AGES, ages),
        (PULLS, pulls),
    ];
    let found = pairs.into_iter().filter_map(|(names, rule)| {
        let values = names.map(|name| setting(name).filter(|value| !value.is_null()));
        Some((names, rule(PairValues { names, values })?))
    });
    found.collect()
}

/// One pair with its values, as far as they are set.
struct PairValues<'v> {
    names: Pair,
    values: [Option<&'v Value>; 2],
}

impl PairValues<'_> {
    /// Both lengths in seconds. `Err`: one of them is no duration.
    fn durations(&self, defaults: [f64; 2]) -> Result<[f64; 2], String> {
        let [first, second] = [0, 1].map(|field| match self.values[field] {
            None => Ok(defaults[field]),
            Some(value) => {
                let text = value.as_str().unwrap_or_default();
                seconds(text).ok_or_else(|| {
                    format!("`{}` is {value}, no duration as `30s`", self.names[field])
                })
            }
        });
        Ok([first?, second?])
    }

    fn number(&self, n: usize, default: i64) -> i64 {
        self.values[n].and_then(Value::as_i64).unwrap_or(default)
    }

    /// How one of them is shown.
    fn shown(&self, n: usize, default: &str) -> String {
        let value = match self.values[n] {
            None => default.to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        format!("`{}` ({value})", self.names[n])
    }
}

fn periods(two: PairValues<'_>) -> Option<String> {
    let both = match two.durations([0.0, 0.0]) {
        Ok(both) => both,
        Err(why) => return Some(why),
    };
    let [all, critical] = [two.shown(0, "0s"), two.shown(1, "0s")];
    if both[1] > both[0] {
        return Some(format!(
            "{critical} is longer than {all}, and the kubelet ends with that: set both, the first at most as long as the \
             second"
        ));
    }
    let short = |length: f64| length > 0.0 && length < 1.0;
    both.iter().any(|length| short(*length)).then(|| {
        format!("{all} and {critical}: the kubelet takes 0s or at least 1s, and ends with less")
    })
}

fn by_priority(two: PairValues<'_>) -> Option<String> {
    let listed = two.values[0].and_then(Value::as_array);
    let period = two.values[1].and_then(Value::as_str).and_then(seconds);
    let both = listed.is_some_and(|it| !it.is_empty()) && period.is_some_and(|it| it > 0.0);
    both.then(|| {
        format!(
            "`{}` contradicts {}, and the kubelet ends with that: set both periods to `0s`",
            two.names[0],
            two.shown(1, "0s")
        )
    })
}

fn thresholds(two: PairValues<'_>) -> Option<String> {
    let [high, low] = [two.number(0, 85), two.number(1, 80)];
    let [shown_high, shown_low] = [two.shown(0, "85"), two.shown(1, "80")];
    if !(0..=100).contains(&high) || !(0..=100).contains(&low) {
        return Some(format!(
            "{shown_high} and {shown_low}: the kubelet takes 0 to 100, and ends with others"
        ));
    }
    (low >= high).then(|| {
        format!(
            "{shown_low} is not below {shown_high}, and the kubelet ends with that: set both, the first below the second"
        )
    })
}

fn ages(two: PairValues<'_>) -> Option<String> {
    let [longest, shortest] = match two.durations([0.0, 120.0]) {
        Ok(both) => both,
        Err(why) => return Some(why),
    };
    // A shortest age of 0 counts as not set.
    let shortest = if shortest == 0.0 { 120.0 } else { shortest };
    (longest > 0.0 && longest <= shortest).then(|| {
        let [longest, shortest] = [two.shown(0, "0s"), two.shown(1, "2m")];
        format!(
            "{longest} is not longer than {shortest}, and the kubelet ends with that: set both, the first longer than the \
             second"
        )
    })
}

fn pulls(two: PairValues<'_>) -> Option<String> {
    let serial = two.values[0].and_then(Value::as_bool) == Some(true);
    let [serialize, parallel] = [two.shown(0, "false"), two.shown(1, "1")];
    match two.number(1, 1) {
        ..=0 => Some(format!(
            "{parallel}: the kubelet takes 1 or more, and ends with less"
        )),
        2.. if serial => Some(format!(
            "{parallel} contradicts {serialize}, and the kubelet ends with that: set `serializeImagePulls: false`"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_ends_a_kubelet_is_named() {
        let table = [
            (json!({}), ""),
            (
                json!({"shutdownGracePeriod": "60s", "shutdownGracePeriodCriticalPods": "20s"}),
                "",
            ),
            (
                json!({"shutdownGracePeriod": "1m", "shutdownGracePeriodCriticalPods": "60s"}),
                "",
            ),
            (json!({"shutdownGracePeriod": "0s"}), ""),
            (
                json!({"shutdownGracePeriod": "10s", "shutdownGracePeriodCriticalPods": "20s"}),
                "`shutdownGracePeriodCriticalPods` (20s) is longer than `shutdownGracePeriod` (10s)",
            ),
            (
                json!({"shutdownGracePeriodCriticalPods": "20s"}),
                "`shutdownGracePeriodCriticalPods` (20s) is longer than `shutdownGracePeriod` (0s)",
            ),
            (
                json!({"shutdownGracePeriod": "500ms"}),
                "takes 0s or at least 1s",
            ),
            (
                json!({"shutdownGracePeriod": 60}),
                "`shutdownGracePeriod` is 60, no duration as `30s`",
            ),
            (
                json!({
                    "shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 9}],
                    "shutdownGracePeriod": "60s"
                }),
                "`shutdownGracePeriodByPodPriority` contradicts `shutdownGracePeriod` (60s)",
            ),
            (
                json!({
                    "shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 9}],
                    "shutdownGracePeriod": "0s"
                }),
                "",
            ),
            (
                json!({"imageGCHighThresholdPercent": 70, "imageGCLowThresholdPercent": 60}),
                "",
            ),
            (
                json!({"imageGCHighThresholdPercent": 70}),
                "`imageGCLowThresholdPercent` (80) is not below",
            ),
            (
                json!({"imageGCLowThresholdPercent": 85}),
                "is not below `imageGCHighThresholdPercent` (85)",
            ),
            (
                json!({"imageGCHighThresholdPercent": 101}),
                "takes 0 to 100",
            ),
            (json!({"imageMaximumGCAge": "3m"}), ""),
            (
                json!({"imageMaximumGCAge": "2m"}),
                "is not longer than `imageMinimumGCAge` (2m)",
            ),
            (json!({"imageMinimumGCAge": "2h"}), ""),
            (json!({"maxParallelImagePulls": 5}), ""),
            (json!({"maxParallelImagePulls": 0}), "takes 1 or more"),
            (
                json!({"serializeImagePulls": true, "maxParallelImagePulls": 5}),
                "contradicts `serializeImagePulls` (true)",
            ),
        ];
        for (settings, wanted) in table {
            let found = contradictions(|name| settings.get(name));
            assert_eq!(found.is_empty(), wanted.is_empty(), "{settings}: {found:?}");
            assert!(
                found.iter().all(|(_, why)| why.contains(wanted)),
                "{settings}: {found:?}"
            );
        }
    }
}
