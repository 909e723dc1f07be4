//! Who holds a machine: a person, or dormer itself.

use serde::{Deserialize, Serialize};

/// Begin of the text of dormer's own hold; its cause follows.
const OWN: &str = "dormer: ";

/// Who keeps a machine as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeldBy {
    /// A person, or the pool's policy in a person's name.
    Person,
    /// dormer itself, until the cause has ended.
    Dormer,
}

impl HeldBy {
    /// Text of dormer's own hold.
    #[must_use]
    pub fn own_text(cause: &str) -> String {
        format!("{OWN}{cause}")
    }

    /// Whose hold it is, by its text: records of builds that stored no holder have nothing else. In such a record a person
    /// named `dormer` counts as dormer.
    #[must_use]
    pub fn from_stored_text(by: &str) -> Self {
        if by.starts_with(OWN) {
            Self::Dormer
        } else {
            Self::Person
        }
    }
}
