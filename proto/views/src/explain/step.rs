//! Next step as data: a command that can be executed as it is, or what has to be done outside of dormer.

use super::sentence;
use crate::open_enum::OpenEnum;
use dormer_proto::listed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

listed! {
    /// What a person does in the world outside of dormer.
    pub enum Outside {
        /// Make the host accept dormer's SSH key.
        AcceptKey = "accept-key",
        /// Start the host or its sshd, or let dormer reach its SSH port.
        OpenSsh = "open-ssh",
        /// Compare the host's key on the host itself.
        CompareHostKey = "compare-host-key",
        /// Trust the key that was read on the host itself: its fingerprint is typed, and not copied.
        TrustHostKey = "trust-host-key",
        /// Mend what the message names on the host.
        MendHost = "mend-host",
        /// Free space on the host's disk.
        FreeDisk = "free-disk",
        /// Set the host's clock.
        SetClock = "set-clock",
        /// Restore a file in the host's virus scanner.
        RestoreFile = "restore-file",
        /// Make room in the cloud, or correct what the MachineSet asks for.
        MakeRoom = "make-room",
        /// Correct the pool, its profile or its payload.
        CorrectPool = "correct-pool",
        /// Grant a right in the cluster, or mend an object that dormer reads.
        MendCluster = "mend-cluster",
        /// Mend the Node: its kubelet, its network, its name.
        MendNode = "mend-node",
        /// Remove what keeps a pod or a Machine: a disruption budget, a finalizer, a lifecycle hook.
        LetGo = "let-go",
        /// End the other operator.
        EndOperator = "end-operator",
    }
}

/// Verbs of kubectl that take a Machine or a Node away, or its pods and volumes by force.
pub(super) const TAKES_AWAY: [&str; 3] = ["delete", "drain", "taint"];

/// Patch of a pod whose finalizers no program removes any more: it is as final as a deletion.
pub(super) const NO_FINALIZERS: &str = r#"{"metadata":{"finalizers":null}}"#;

/// One step: a command, or something to do outside of dormer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// The step for people.
    pub say: String,
    /// Command to execute as it is; empty if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// Command that a person completes, by filling in its words in capitals, or decides on; empty if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fill: Vec<String>,
    /// Kind of what has to be done outside of dormer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<OpenEnum<Outside>>,
    /// Whether it replaces the steps before it, instead of following them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub instead: bool,
}

impl Step {
    pub(super) fn outside(kind: Outside, say: impl Into<String>) -> Self {
        Self {
            say: say.into(),
            argv: Vec::new(),
            fill: Vec::new(),
            outside: Some(kind.into()),
            instead: false,
        }
    }

    /// The step with a command that a person completes or decides on.
    pub(super) fn fill(mut self, words: &[&str]) -> Self {
        self.fill = words.iter().map(|it| (*it).to_owned()).collect();
        self
    }

    pub(super) fn command(say: &str, argv: &[&str]) -> Self {
        Self {
            say: say.to_owned(),
            argv: argv.iter().map(|it| (*it).to_owned()).collect(),
            fill: Vec::new(),
            outside: None,
            instead: false,
        }
    }

    /// A command alone.
    pub fn of_command(argv: &[&str]) -> Self {
        Self::command("", argv)
    }

    pub(super) fn instead(mut self) -> Self {
        self.instead = true;
        self
    }

    /// Makes a command of dormer's one for the dormer that was asked: called as `program`, with the `flags` that reach it; and one of
    /// kubectl's one for the same cluster, with the flags of `cluster`. Without them it would act on another, which may have a
    /// machine of the same name.
    pub fn reach(&mut self, program: &[&str], flags: &[String], cluster: &[String]) {
        for words in [&mut self.argv, &mut self.fill] {
            match words.first().map(String::as_str) {
                Some("dormer") => {
                    let program = program.iter().map(|it| (*it).to_owned());
                    words.splice(..1, program);
                    words.extend_from_slice(flags);
                }
                Some("kubectl") => {
                    words.splice(1..1, cluster.iter().cloned());
                }
                Some(_) | None => {}
            }
        }
    }

    /// Whether its command takes a Machine, a Node, a run or the finalizers of a pod away, or detaches volumes by force:
    /// what it is for has to stand beside it.
    pub fn takes_away(&self) -> bool {
        let words = if self.argv.is_empty() {
            &self.fill
        } else {
            &self.argv
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["kubectl", "dormer", verb, ..] => ["recreate", "remove"].contains(verb),
            ["kubectl", words @ ..] => {
                let takes = |it: &&str| TAKES_AWAY.contains(it) || *it == NO_FINALIZERS;
                words.iter().any(takes)
            }
            [_, verb, ..] => ["recreate", "remove"].contains(verb),
            _ => false,
        }
    }

    /// The step in words, without its command.
    pub(super) fn words(&self) -> String {
        let mut say = self.say.clone();
        if self.instead {
            // Its first letter; a name in another script stays as it is.
            say.get_mut(..1).map(str::make_ascii_lowercase);
            say.insert_str(0, "Or ");
        }
        say
    }

    /// The step with its command, in a sentence.
    pub(super) fn prose(&self) -> String {
        match self.line() {
            Some(line) => format!("{}: {line}.", self.words()),
            None => sentence(&self.words()),
        }
    }

    /// The step with its command on a line of its own, so that one can copy it.
    pub fn lines(&self) -> Vec<String> {
        match self.line() {
            Some(line) => vec![format!("{}:", self.words()), format!("  {line}")],
            None => vec![sentence(&self.words())],
        }
    }

    /// Its command as a line for a shell, to be completed where a person fills in a part; `None` if it has none.
    pub fn line(&self) -> Option<String> {
        let words = match self.argv.is_empty() {
            true => &self.fill,
            false => &self.argv,
        };
        (!words.is_empty()).then(|| {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            words.join(" ")
        })
    }
}

/// Lines of steps, with numbers where several follow one another. An alternative to them has none.
pub fn step_lines(steps: &[Step]) -> Vec<String> {
    let numbered = steps.iter().filter(|it| !it.instead).count() > 1;
    let mut number = 0;
    let lines = steps.iter().flat_map(|step| {
        let mut lines = step.lines();
        if numbered && !step.instead {
            number += 1;
            lines[0].insert_str(0, &format!("{number}. "));
            lines[1..]
                .iter_mut()
                .for_each(|line| line.insert_str(0, "   "));
        }
        lines
    });
    lines.collect()
}

/// Word of a command line, quoted for a POSIX shell if needed.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::phase::Listed;

    #[test]
    fn a_word_with_a_blank_is_quoted() {
        let step = Step::command("", &["dormer", "retry", "it's b"]);
        assert_eq!(step.line().as_deref(), Some("dormer retry 'it'\\''s b'"));
    }

    #[test]
    fn steps_that_follow_one_another_are_numbered() {
        let see = Step::command("See the request", &["kubectl", "describe", "csr"]);
        let mend = Step::outside(Outside::MendNode, "Mend it");
        let or = Step::command("Replace it", &["dormer", "recreate", "m"]).instead();
        assert_eq!(
            step_lines(&[see.clone(), mend, or.clone()]),
            [
                "1. See the request:",
                "     kubectl describe csr",
                "2. Mend it.",
                "Or replace it:",
                "  dormer recreate m",
            ]
        );
        let lines = step_lines(&[see, or]);
        assert_eq!(lines[..2], ["See the request:", "  kubectl describe csr"]);
    }

    #[test]
    fn the_actions_outside_of_dormer_are_few() {
        assert!(Outside::ALL.len() <= 15, "generic actions on the world");
    }
}
