//! Why ranks are missing, in words.

use std::collections::BTreeMap;

use base::{HostList, RankSet};

use super::clean;
use crate::stack::Missing;

/// Maximum number of reasons that a text gives. The ranks with further reasons share one line.
const MAX_REASONS: usize = 16;

/// Returns the reasons why ranks are missing, each with its ranks. The text follows the numbers of the ranks. Hosts with the same
/// reason share it.
#[must_use]
pub fn reasons<'a>(
    missing: impl Iterator<Item = (&'a Missing, &'a RankSet)>,
) -> Vec<(RankSet, String)> {
    let mut shared: BTreeMap<Missing, (RankSet, HostList)> = BTreeMap::new();
    for (why, ranks) in missing {
        let (why, host) = apart(why);
        let (all, hosts) = shared.entry(why).or_default();
        *all = all.union(ranks);
        if let Some(host) = host {
            hosts.push(host);
        }
    }
    let rest = shared.len().saturating_sub(MAX_REASONS);
    let mut shared: Vec<_> = shared.into_iter().collect();
    shared.sort_by_key(|(_, (ranks, _))| ranks.first());
    let mut shared = shared.into_iter();
    let first = shared.by_ref().take(MAX_REASONS);
    let mut reasons: Vec<(RankSet, String)> = first
        .map(|(why, (ranks, hosts))| (ranks, reason(&why, &hosts)))
        .collect();
    if rest > 0 {
        let others = shared.fold(RankSet::new(), |all, (_, (ranks, _))| all.union(&ranks));
        let noun = if rest == 1 { "reason" } else { "reasons" };
        reasons.push((others, format!("for {rest} more {noun}")));
    }
    reasons
}

/// Takes the name of the host out of a reason.
fn apart(why: &Missing) -> (Missing, Option<&String>) {
    let none = String::new;
    match why {
        Missing::Elsewhere(host) => (Missing::Elsewhere(none()), Some(host)),
        Missing::NotStarted { host, why } => {
            let (why, without) = (why.clone(), none());
            (Missing::NotStarted { host: without, why }, Some(host))
        }
        Missing::AgentLost(host) => (Missing::AgentLost(none()), Some(host)),
        Missing::AgentSilent(host) => (Missing::AgentSilent(none()), Some(host)),
        Missing::AgentRefused(host) => (Missing::AgentRefused(none()), Some(host)),
        Missing::Gone
        | Missing::Zombie
        | Missing::TracedBy(_)
        | Missing::NotPermitted
        | Missing::Unproved
        | Missing::NotFound(_)
        | Missing::Changed
        | Missing::Unreachable => (why.clone(), None),
    }
}

fn reason(why: &Missing, hosts: &HostList) -> String {
    let is_one = hosts.len() == 1;
    let word = if is_one { "host" } else { "hosts" };
    let on = format!("on {word} {}", clean(&hosts.to_string()));
    let agent = || {
        let word = if is_one { "agent" } else { "agents" };
        format!("the {word} {on}")
    };
    match why {
        Missing::Gone => "ended".to_owned(),
        Missing::Zombie => "ended, and its parent has not reaped it".to_owned(),
        Missing::TracedBy(pid) => format!("process {pid} debugs it"),
        Missing::NotPermitted => "no permission to look at it".to_owned(),
        Missing::Unproved => "nothing shows which process it is".to_owned(),
        Missing::NotFound(silent) if silent.is_empty() => {
            "not found on the nodes that were searched".to_owned()
        }
        Missing::NotFound(silent) => format!("not found, but {} did not answer", clean(silent)),
        Missing::Changed => "became another program during the sample".to_owned(),
        Missing::Elsewhere(_) => format!("{on}, where no agent was started"),
        Missing::Unreachable => "did not stop in time".to_owned(),
        Missing::NotStarted { why, .. } => format!("{} did not start: {}", agent(), clean(why)),
        Missing::AgentLost(_) if is_one => format!("{} was lost", agent()),
        Missing::AgentLost(_) => format!("{} were lost", agent()),
        Missing::AgentSilent(_) => format!("{} did not answer in time", agent()),
        Missing::AgentRefused(_) => format!("{} refused to look at it", agent()),
    }
}

#[cfg(test)]
mod tests {
    use base::Rank;

    use super::*;

    #[test]
    fn hosts_with_the_same_reason_share_it() {
        let lost = |host: u32| Missing::AgentLost(format!("n{host}"));
        let not_started = |host: u32, why: String| Missing::NotStarted {
            host: format!("n{host}"),
            why,
        };
        let mut all: BTreeMap<Missing, RankSet> = BTreeMap::new();
        for host in 1..=4 {
            all.insert(lost(host), RankSet::range(2 * host..2 * host + 2));
        }
        all.insert(lost(7), RankSet::single(Rank(20)));
        all.insert(
            not_started(8, "no route".to_owned()),
            RankSet::single(Rank(21)),
        );
        all.insert(
            not_started(9, "no route".to_owned()),
            RankSet::single(Rank(22)),
        );
        all.insert(Missing::Gone, RankSet::single(Rank(0)));
        let text = |all: &BTreeMap<Missing, RankSet>| {
            let said = reasons(all.iter()).into_iter();
            let said: Vec<String> = said.map(|(ranks, why)| format!("{ranks}: {why}")).collect();
            said.join("\n")
        };
        insta::assert_snapshot!(text(&all), @"
        0: ended
        2-9,20: the agents on hosts n[1-4,7] were lost
        21-22: the agents on hosts n[8-9] did not start: no route
        ");
        // The words of ssh often have the name of the host.
        let many = (0..100).map(|host| {
            let why = format!("no route to n{host}");
            (not_started(host, why), RankSet::single(Rank(host)))
        });
        let many = text(&many.collect());
        assert_eq!(many.lines().count(), MAX_REASONS + 1);
        let last = many.lines().last().unwrap();
        assert!(last.ends_with(": for 84 more reasons"), "{last}");
    }
}
