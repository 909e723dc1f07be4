//! One planted mistake for each row that a release, a build, a layer or the cluster can make. Each is refused with its reason.

mod cluster;
mod containerd;
mod host;
mod kubernetes;

use super::node::{NODE, Node};

/// Row of the table, a node with a mistake, and what the refusal says.
type Mistake<'a> = (u32, Node<'a>, &'static str);

fn refused(mistakes: &[Mistake]) {
    for (row, node, wanted) in mistakes {
        let why = node.render().expect_err(wanted).to_string();
        assert!(
            why.contains(wanted),
            "row {row}\nwanted {wanted}\ngot {why}"
        );
    }
}

/// A node whose payload has this kubelet and containerd 1.7.
fn with_kubelet<'a>(kubelet: &'a str, layer: &'a str) -> Node<'a> {
    Node {
        kubelet,
        layer,
        ..NODE
    }
}

/// A node whose payload has this containerd and the kubelet of 1.33.
fn with_containerd<'a>(containerd: &'a str, layer: &'a str) -> Node<'a> {
    Node {
        containerd,
        layer,
        ..NODE
    }
}

/// A node with the oldest programs of the table.
fn with_layer(layer: &str) -> Node<'_> {
    Node { layer, ..NODE }
}

/// A layer whose kubelet has this one flag.
fn kubelet_flag(flag: &str) -> String {
    format!("host: {{services: {{kubelet: {{command: ['C:\\k\\kubelet.exe', '{flag}']}}}}}}")
}
