//! Machines that were made from an earlier template of their MachineSet, such as one with another image of Windows.

use crate::machine::TemplateDifference;

/// Most names in the sentence; the rest is a count.
const NAMES_MAX: usize = 6;

/// Machines with equal differences from their templates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutdatedMachines<'a> {
    /// Names of the machines, in the given order.
    pub names: Vec<&'a str>,
    /// Fields that differ.
    pub differs: &'a [TemplateDifference],
}

/// Groups machines (name and differences) by what differs. Machines without differences are left out.
pub fn outdated<'a>(
    machines: impl IntoIterator<Item = (&'a str, &'a [TemplateDifference])>,
) -> Vec<OutdatedMachines<'a>> {
    let mut groups: Vec<OutdatedMachines<'a>> = Vec::new();
    for (name, differs) in machines {
        match groups.iter_mut().find(|group| group.differs == differs) {
            _ if differs.is_empty() => {}
            Some(group) => group.names.push(name),
            None => groups.push(OutdatedMachines {
                names: vec![name],
                differs,
            }),
        }
    }
    groups
}

impl OutdatedMachines<'_> {
    /// The machines, and that an earlier template made them.
    #[must_use]
    pub fn heading(&self) -> String {
        let shown = &self.names[..self.names.len().min(NAMES_MAX)];
        let more = self.names.len() - shown.len();
        let names = shown.join(", ");
        let more = if more == 0 {
            String::new()
        } else {
            format!(" and {more} more")
        };
        let was = if self.names.len() == 1 { "was" } else { "were" };
        let set = if self.names.len() == 1 {
            "its MachineSet"
        } else {
            "their MachineSet"
        };
        format!("{names}{more} {was} made from an earlier template of {set}.")
    }

    /// How such a machine is replaced. Differences in Cluster API's words are those of a MachineDeployment's Machines: their
    /// MachineSet keeps the earlier template, so a deleted one would come back as it was.
    #[must_use]
    pub fn remedy(&self) -> String {
        let in_words = |it: &TemplateDifference| it.machine.is_none() && it.template.is_none();
        if self.differs.iter().all(in_words) {
            return "Cluster API replaces the machines of a MachineDeployment by itself. If it does not: is the \
                    MachineDeployment paused, or its strategy OnDelete?"
                .to_owned();
        }
        let name = self.names.first().copied().unwrap_or("MACHINE");
        format!("To replace a machine with one of today's template: dormer recreate {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differing(field: &str) -> Vec<TemplateDifference> {
        vec![TemplateDifference {
            field: field.to_owned(),
            machine: Some("1".to_owned()),
            template: None,
        }]
    }

    #[test]
    fn machines_with_equal_differences_are_one_group() {
        let [image, disk] = ["image", "disk"].map(differing);
        let names: Vec<String> = (0..9).map(|at| format!("m{at}")).collect();
        let mut machines: Vec<(&str, &[TemplateDifference])> = names
            .iter()
            .map(|name| (name.as_str(), &image[..]))
            .collect();
        machines.insert(0, ("current", &[]));
        machines.insert(3, ("big", &disk));
        let groups = outdated(machines);
        let headings: Vec<_> = groups.iter().map(OutdatedMachines::heading).collect();
        assert_eq!(
            headings,
            [
                "m0, m1, m2, m3, m4, m5 and 3 more were made from an earlier template of their MachineSet.",
                "big was made from an earlier template of its MachineSet.",
            ]
        );
        assert_eq!(
            groups[1].differs[0].to_string(),
            "disk: 1, the template has none"
        );
        let remedy = groups[1].remedy();
        assert!(remedy.ends_with("dormer recreate big"), "{remedy}");
        assert!(outdated([("a", &[][..])]).is_empty());
        let words = [TemplateDifference {
            field: "Version v1.33.1, v1.34.0 required".to_owned(),
            machine: None,
            template: None,
        }];
        let group = &outdated([("a", &words[..])])[0];
        assert!(!group.remedy().contains("dormer"), "{}", group.remedy());
    }
}
