//! The registry below `HKEY_LOCAL_MACHINE`. A program of 64 bits sees the 64-bit view.

use dormer_host::ops::{
    RegistryDelete, RegistryNames, RegistryRead, RegistryWrite, Value, WinError,
};
use windows_registry::{Key, LOCAL_MACHINE, Type};

use super::error::Result;
use crate::data;

/// The Win32 number that the crate keeps as an HRESULT.
fn number(error: windows::core::Error) -> WinError {
    let error = WinError::new(error.code().0.cast_unsigned());
    super::error::code(error.number())
}

fn open(key: &str) -> Result<Key> {
    LOCAL_MACHINE.options().read().open(key).map_err(number)
}

pub(super) fn read(ask: &RegistryRead) -> Result<Value> {
    let value = open(&ask.key)?.get_value(&ask.name).map_err(number)?;
    Ok(data::decode(kind(value.ty()), &value))
}

fn kind(kind: Type) -> u32 {
    match kind {
        Type::U32 => data::NUMBER,
        Type::U64 => data::LONG,
        Type::String => data::TEXT,
        Type::ExpandString => data::EXPAND,
        Type::MultiString => data::TEXTS,
        Type::Bytes => data::BINARY,
        Type::Other(kind) => kind,
    }
}

pub(super) fn list(key: &str) -> Result<RegistryNames> {
    let key = open(key)?;
    let mut names = RegistryNames {
        keys: key.keys().map_err(number)?.collect(),
        values: key
            .values()
            .map_err(number)?
            .map(|(name, _)| name)
            .collect(),
    };
    names.keys.sort();
    names.values.sort();
    Ok(names)
}

pub(super) fn write(ask: &RegistryWrite) -> Result<()> {
    let options = &mut LOCAL_MACHINE.options();
    let key = options.read().write().create().open(&ask.key);
    let (kind, mut bytes) = data::encode(&ask.value);
    // No bytes still need a pointer that may be read: Wine refuses others with 998.
    bytes.reserve(1);
    let kind = match kind {
        data::NUMBER => Type::U32,
        data::LONG => Type::U64,
        data::TEXT => Type::String,
        data::EXPAND => Type::ExpandString,
        data::TEXTS => Type::MultiString,
        _ => Type::Bytes,
    };
    key.and_then(|key| key.set_bytes(&ask.name, kind, &bytes))
        .map_err(number)
}

pub(super) fn delete(ask: &RegistryDelete) -> Result<()> {
    let key = LOCAL_MACHINE.options().read().write().open(&ask.key);
    key.and_then(|key| key.remove_value(&ask.name))
        .map_err(number)
}
