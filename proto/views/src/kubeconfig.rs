//! The sentence where no kubeconfig can be used: one for the commands that ask a cluster, for `dormer run` and for
//! `kubectl dormer`.

/// Whether the library's error `why` says no more than that nothing is there.
pub fn is_missing(why: &str) -> bool {
    ["No such file", "not found"]
        .iter()
        .any(|it| why.contains(it))
}

/// Sentence and remedy. `why` is the library's error, `named` the variable KUBECONFIG. What is only missing needs none of
/// the library's words about a file and a pod's account.
pub fn no_kubeconfig(why: &str, named: Option<&str>) -> String {
    let cause = match named.filter(|it| !it.is_empty()) {
        _ if !is_missing(why) => why.to_owned(),
        None => "there is no ~/.kube/config, and this is no pod".to_owned(),
        Some(named) => format!("KUBECONFIG is {named}, which cannot be read"),
    };
    format!("no kubeconfig can be used: {cause}\nName one with --kubeconfig")
}

#[cfg(test)]
mod tests {
    use super::no_kubeconfig;

    #[test]
    fn what_is_missing_is_named_and_another_cause_is_quoted() {
        let why = "failed to infer config: environment variable not found";
        assert_eq!(
            no_kubeconfig(why, None),
            "no kubeconfig can be used: there is no ~/.kube/config, and this is no pod\nName one with --kubeconfig"
        );
        assert_eq!(no_kubeconfig(why, Some("")), no_kubeconfig(why, None));
        assert!(no_kubeconfig(why, Some("/x")).contains("KUBECONFIG is /x, which cannot be read"));
        let broken = no_kubeconfig("line 3: a list is missing", Some("/x"));
        assert!(broken.contains("line 3: a list is missing"), "{broken}");
    }
}
