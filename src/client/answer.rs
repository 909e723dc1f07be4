//! Server answer in two forms: as received, for programs; and as this build reads it, for people.

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, Error},
};
use serde_json::Value;

/// Answer, or an item of one. Serializing it writes what was received, including fields that only a newer server
/// knows.
#[derive(Debug, Clone)]
pub(crate) struct Answer<T> {
    raw: Value,
    /// Answer as this build reads it.
    pub(crate) view: T,
}

impl<T> Answer<T> {
    /// Answer as it was received.
    pub(crate) fn raw(&self) -> &Value {
        &self.raw
    }

    /// Replaces a field that the answer has, by what this build derives from several answers.
    pub(crate) fn derive(&mut self, field: &str, value: &str) {
        if let Some(found) = self.raw.get_mut(field) {
            *found = value.into();
        }
    }
}

impl<T> Serialize for Answer<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw.serialize(serializer)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Answer<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Value::deserialize(deserializer)?;
        let view = T::deserialize(&raw).map_err(D::Error::custom)?;
        Ok(Self { raw, view })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_views::rollout::Pool;
    use serde_json::json;

    #[test]
    fn an_answer_keeps_what_this_build_does_not_know() {
        let came =
            json!({"pool": "windows", "approval": "by-vote", "members": 3, "colour": "blue"});
        let answer: Answer<Pool> = serde_json::from_value(came.clone()).unwrap();
        assert_eq!(answer.view.approval.id(), "by-vote");
        assert_eq!(serde_json::to_value(&answer).unwrap(), came);
        assert!(serde_json::from_value::<Answer<Pool>>(json!({"pool": 1})).is_err());
    }
}
