//! Encoding of a workflow's records, messages and orders, compiled in one package.
//!
//! Each package that uses a provided method of [`Workflow`](crate::Workflow) compiles the code of serde for all data types
//! of the workflow once more, and that code is the longest part of a build. A workflow with large data types therefore uses
//! [`codec_compiled_here`](crate::codec_compiled_here): then its own package alone compiles it.

pub use dormer_proto::{
    envelope::{DecodeError, EncodeError, decode, encode},
    id::Sum,
    message::TaskOrder,
};

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
            $crate::codec::decode(bytes, known_schema)
        }

        fn encode_record(
            record: &$crate::Record<Self>,
        ) -> ::std::result::Result<
            (::std::vec::Vec<u8>, $crate::codec::Sum),
            $crate::codec::EncodeError,
        > {
            $crate::codec::encode(record, Self::SCHEMA)
        }

        fn decode_message(
            bytes: &[u8],
            known_schema: u16,
        ) -> ::std::result::Result<$crate::InboxMessageOf<Self>, $crate::codec::DecodeError> {
            $crate::codec::decode(bytes, known_schema).map(|(message, _)| message)
        }

        fn encode_message(
            message: &$crate::InboxMessageOf<Self>,
        ) -> ::std::result::Result<::std::vec::Vec<u8>, $crate::codec::EncodeError> {
            $crate::codec::encode(message, Self::SCHEMA).map(|(bytes, _)| bytes)
        }

        fn encode_order(
            order: &$crate::codec::TaskOrder<Self::Task>,
        ) -> ::std::result::Result<::std::vec::Vec<u8>, $crate::codec::EncodeError> {
            $crate::codec::encode(order, Self::SCHEMA).map(|(bytes, _)| bytes)
        }
    };
}
