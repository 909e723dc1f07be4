//! Texts of older servers, whose answers had no fields for what the texts say.

use dormer_proto::{
    machine::{self, APPROVED_BY_OTHERS, ForeignNode, TO_CHANGE},
    other_operator,
    requester::Requester,
};

/// Begin of the reason for which a pod stays that is deleted and has finalizers; their names follow.
const WAITS_FOR_FINALIZERS: &str = "it waits for its finalizers ";

const NODE: &str = "the Node ";
const THEIRS: &str = " is there, and belongs to ";
const OURS: &str = ", not ";

/// End of a list that names only its first items.
const MORE: &str = " more";

/// Who asked for something, and why. `by`: both in one text.
pub(crate) fn requester(by: &str) -> Requester<'_> {
    Requester::of(by, None)
}

/// The operator that runs beside dormer, and the commands that stop it. Both were in one text, also in what a machine waits
/// for.
pub(crate) fn operator(runs: &str) -> (&str, Option<&str>) {
    other_operator::parts(runs)
}

/// A reason that lists all differences, with the first of them and a count.
pub(crate) fn in_brief(reason: &str) -> String {
    let Some((before, after)) = reason.split_once(TO_CHANGE) else {
        return reason.to_owned();
    };
    let (all, rest) = after.split_at(after.rfind(')').unwrap_or(after.len()));
    if all.ends_with(MORE) {
        return reason.to_owned();
    }
    let brief = machine::in_brief(&format!("{TO_CHANGE}{all}"));
    format!("{before}{brief}{rest}")
}

/// Names of the finalizers that keep a pod. `why`: the reason for which it stays. `None`: something else keeps it.
pub(crate) fn finalizers(why: &str) -> Option<&str> {
    let names = why.strip_prefix(WAITS_FOR_FINALIZERS)?;
    Some(names.trim_end_matches('.'))
}

/// The Node that the whole reason of a refused certificate request is about. `None`: the reason is another one, also if it
/// repeats such a sentence: the texts of a certificate request are its host's own.
pub(crate) fn refused_for(why: &str) -> Option<ForeignNode> {
    let why = why.strip_prefix(APPROVED_BY_OTHERS).unwrap_or(why);
    let found = foreign_node(why)?;
    (found.to_string() == why && !found.node.contains(' ')).then_some(found)
}

/// The Node that a text names at its end.
fn foreign_node(text: &str) -> Option<ForeignNode> {
    let (before, ids) = text.split_once(THEIRS)?;
    let (_, node) = before.rsplit_once(NODE)?;
    let (theirs, ours) = ids.split_once(OURS)?;
    let [node, theirs, ours] = [node, theirs, ours].map(str::to_owned);
    Some(ForeignNode { node, theirs, ours })
}

/// The failure of a Node that did not appear, if a foreign Node has its name. Older workflows said both halves as if they
/// contradicted each other: that no Node of this name appeared, and that it is there.
pub(crate) fn taken_name(message: &str) -> Option<String> {
    let found = foreign_node(message)?;
    message
        .strip_prefix("no Node ")?
        .strip_prefix(&*found.node)?;
    Some(found.name_taken())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_reason_lists_its_first_differences() {
        assert_eq!(in_brief("a disk is full"), "a disk is full");
        let two = "its Machine is replaced (to change: a, b)";
        assert_eq!(in_brief(two), two);
        let brief = "its Machine is replaced (to change: a, b, c (x) and 2 more)";
        let all = "its Machine is replaced (to change: a, b, c (x), d, e)";
        assert_eq!(in_brief(all), brief);
        let todays = "its Machine is replaced (to change: a (x, y), b, c and 2 more)";
        assert_eq!(in_brief(todays), todays);
    }

    #[test]
    fn an_older_refusal_names_its_foreign_node() {
        let found = ForeignNode {
            node: "ip-10-0-0-7.ec2.internal".into(),
            theirs: "aws:///us-east-1a/i-0".into(),
            ours: "aws:///us-east-1a/i-1".into(),
        };
        let text = found.to_string();
        let node = |text: &str| refused_for(text).map(|it| it.node);
        assert_eq!(node(&text).as_ref(), Some(&found.node));
        let approved = format!("{APPROVED_BY_OTHERS}{text}");
        assert_eq!(node(&approved).as_ref(), Some(&found.node));
        let within =
            format!("no Node n appeared; the Node m asks; a request was not approved: {text}");
        assert_eq!(foreign_node(&within).map(|it| it.node), Some(found.node));
        assert_eq!(node(&within), None);
        let imitated =
            "its organization is the Node master-0 is there, and belongs to x, not system:nodes";
        assert_eq!(node(imitated), None);
        assert_eq!(
            foreign_node("the Node n is there, and nothing says more"),
            None
        );
    }

    #[test]
    fn a_name_that_a_foreign_node_has_is_one_cause() {
        let message = "no Node ip-10-0-0-7 appeared; a certificate request was not approved: the Node ip-10-0-0-7 is there, \
                       and belongs to old:///1, not aws:///a/i-1";
        assert_eq!(
            taken_name(message).as_deref(),
            Some(
                "its Node did not appear, because a foreign Node has its name: ip-10-0-0-7 belongs to old:///1, and the \
                 Machine is aws:///a/i-1"
            )
        );
        let other = "no Node n appeared; a certificate request was not approved: it names the address 10.9.9.9";
        assert_eq!(taken_name(other), None);
    }
}
