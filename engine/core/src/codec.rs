//! Encoding of a workflow's records, messages and orders.
//!
//! The methods of [`Workflow`] call these functions. Each package that uses a provided method compiles the code of serde
//! for all data types of the workflow once more, and that code is the longest part of a build. A workflow with large data
//! types therefore uses [`codec_compiled_here`](crate::codec_compiled_here): then its own package alone compiles it.

use crate::{
    record::Record,
    workflow::{InboxMessageOf, Workflow},
};
pub use dormer_proto::{
    envelope::{self, DecodeError, EncodeError},
    id::Sum,
    message::TaskOrder,
};

/// Decodes a record. See [`Workflow::decode_record`].
///
/// # Errors
/// [`DecodeError`] with the reason.
pub fn decode_record<W: Workflow>(
    bytes: &[u8],
    known_schema: u16,
) -> Result<(Record<W>, Sum), DecodeError> {
    envelope::decode(bytes, known_schema)
}

/// Encodes a record. See [`Workflow::encode_record`].
///
/// # Errors
/// [`EncodeError`]: the result would be too large.
pub fn encode_record<W: Workflow>(record: &Record<W>) -> Result<(Vec<u8>, Sum), EncodeError> {
    envelope::encode(record, W::SCHEMA)
}

/// Decodes an inbox message. See [`Workflow::decode_message`].
///
/// # Errors
/// [`DecodeError`] with the reason.
pub fn decode_message<W: Workflow>(
    bytes: &[u8],
    known_schema: u16,
) -> Result<InboxMessageOf<W>, DecodeError> {
    envelope::decode(bytes, known_schema).map(|(message, _)| message)
}

/// Encodes an inbox message. See [`Workflow::encode_message`].
///
/// # Errors
/// [`EncodeError`]: the result would be too large.
pub fn encode_message<W: Workflow>(message: &InboxMessageOf<W>) -> Result<Vec<u8>, EncodeError> {
    envelope::encode(message, W::SCHEMA).map(|(bytes, _)| bytes)
}

/// Encodes an order. See [`Workflow::encode_order`].
///
/// # Errors
/// [`EncodeError`]: the result would be too large.
pub fn encode_order<W: Workflow>(order: &TaskOrder<W::Task>) -> Result<Vec<u8>, EncodeError> {
    envelope::encode(order, W::SCHEMA).map(|(bytes, _)| bytes)
}

/// Inside `impl Workflow for …`: compiles the encoding of this workflow's data types in the package that defines it.
#[macro_export]
macro_rules! codec_compiled_here {
    () => {
        fn decode_record(
            bytes: &[u8],
            known_schema: u16,
        ) -> ::std::result::Result<
            ($crate::Record<Self>, $crate::codec::Sum),
            $crate::codec::DecodeError,
        > {
            $crate::codec::decode_record::<Self>(bytes, known_schema)
        }

        fn encode_record(
            record: &$crate::Record<Self>,
        ) -> ::std::result::Result<
            (::std::vec::Vec<u8>, $crate::codec::Sum),
            $crate::codec::EncodeError,
        > {
            $crate::codec::encode_record::<Self>(record)
        }

        fn decode_message(
            bytes: &[u8],
            known_schema: u16,
        ) -> ::std::result::Result<$crate::InboxMessageOf<Self>, $crate::codec::DecodeError> {
            $crate::codec::decode_message::<Self>(bytes, known_schema)
        }

        fn encode_message(
            message: &$crate::InboxMessageOf<Self>,
        ) -> ::std::result::Result<::std::vec::Vec<u8>, $crate::codec::EncodeError> {
            $crate::codec::encode_message::<Self>(message)
        }

        fn encode_order(
            order: &$crate::codec::TaskOrder<Self::Task>,
        ) -> ::std::result::Result<::std::vec::Vec<u8>, $crate::codec::EncodeError> {
            $crate::codec::encode_order::<Self>(order)
        }
    };
}
