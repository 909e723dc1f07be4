//! Addresses of API and console: percent-encoding of names in them, and the header that names the cluster.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Header of the API's answers: absolute path of a kubeconfig for the cluster, on the computer of the answering dormer. Only
/// a demonstration sends it, as no kubeconfig of a person leads to its cluster.
pub const KUBECONFIG_HEADER: &str = "dormer-kubeconfig";

/// All but RFC 3986's unreserved characters.
const RESERVED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Percent-encoded `text`: one segment of a path, or one value of a query.
#[must_use]
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, &RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_one_path_segment() {
        assert_eq!(segment("ns/win-1 ü"), "ns%2Fwin-1%20%C3%BC");
        assert_eq!(segment("a.b_c~d&e=f"), "a.b_c~d%26e%3Df");
    }
}
