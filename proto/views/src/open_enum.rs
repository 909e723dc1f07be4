//! Open enums: an answer of a newer dormer with an unknown value is read, not refused.

use dormer_proto::phase::Listed;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{borrow::Cow, fmt};

/// Value of a list, or an id that only a newer dormer knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenEnum<T> {
    /// A value of the list.
    Known(T),
    /// An id that this build does not know.
    Newer(String),
}

impl<T: Listed> OpenEnum<T> {
    /// The value, if this build knows it.
    pub fn known(&self) -> Option<T> {
        match self {
            Self::Known(value) => Some(*value),
            Self::Newer(_) => None,
        }
    }

    pub fn id(&self) -> &str {
        match self {
            Self::Known(value) => value.id(),
            Self::Newer(id) => id,
        }
    }
}

impl<T> From<T> for OpenEnum<T> {
    fn from(value: T) -> Self {
        Self::Known(value)
    }
}

impl<T: Listed> PartialEq<T> for OpenEnum<T> {
    fn eq(&self, other: &T) -> bool {
        self.known() == Some(*other)
    }
}

impl<T: Listed> fmt::Display for OpenEnum<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}

impl<T: Listed> Serialize for OpenEnum<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

impl<'de, T: Listed> Deserialize<'de> for OpenEnum<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = Cow::<'de, str>::deserialize(deserializer)?;
        Ok(T::of_id(&id).map_or_else(|| Self::Newer(id.into_owned()), Self::Known))
    }
}

impl<T: Listed> JsonSchema for OpenEnum<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        let name = std::any::type_name::<T>();
        name.rsplit("::").next().unwrap_or(name).into()
    }

    fn schema_id() -> Cow<'static, str> {
        std::any::type_name::<T>().into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let ids: Vec<&str> = T::ALL.iter().map(|value| value.id()).collect();
        json_schema!({ "type": "string", "enum": ids })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::phase::MachineState;

    #[test]
    fn an_id_of_a_newer_dormer_is_kept() {
        let read = |json: &str| serde_json::from_str::<OpenEnum<MachineState>>(json).unwrap();
        assert_eq!(read(r#""Joined""#), MachineState::Joined);
        let newer = read(r#""Hibernating""#);
        assert_eq!((newer.known(), newer.id()), (None, "Hibernating"));
        assert_eq!(serde_json::to_string(&newer).unwrap(), r#""Hibernating""#);
    }
}
