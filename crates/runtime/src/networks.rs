//! The networks of this node: which of its addresses other processes of the tree may use (`--if-include`).

use std::{fmt, net::IpAddr};

use dvm::bootstrap::Hosting;
use os::InterfaceAddress;

/// No address of this node is on a network that the user has named. The text says what the node has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has no network `{}`: its networks are {there}", wanted.join(","))]
pub struct NoNetwork {
    pub wanted: Vec<String>,
    pub there: There,
}

/// The networks that a node has, as text: `eth0 (10.1.2.3, fd00::3), ib0 (10.2.2.3)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct There(Vec<(String, Vec<IpAddr>)>);

impl There {
    fn of(addresses: &[InterfaceAddress]) -> Self {
        let mut there: Vec<(String, Vec<IpAddr>)> = Vec::new();
        for one in addresses.iter().filter(|one| !one.address.is_loopback()) {
            match there.iter_mut().find(|(name, _)| *name == one.interface) {
                Some((_, known)) => known.push(one.address),
                None => there.push((one.interface.clone(), vec![one.address])),
            }
        }
        Self(there)
    }

    /// Leaves out the addresses, which differ between nodes with equal interfaces.
    fn without_addresses(mut self) -> Self {
        for (_, addresses) in &mut self.0 {
            addresses.clear();
        }
        self
    }
}

impl fmt::Display for There {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let networks = self.0.iter().map(|(name, addresses)| {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            match addresses.is_empty() {
                true => format!("`{name}`"),
                false => format!("`{name}` ({})", addresses.join(", ")),
            }
        });
        let networks: Vec<_> = networks.collect();
        match networks.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&networks.join(", ")),
        }
    }
}

/// Checks that this node has an address on one of the networks.
///
/// # Errors
///
/// [`NoNetwork`] if it has none.
pub fn check(addresses: &[InterfaceAddress], wanted: &[String]) -> Result<(), NoNetwork> {
    let all = |none| NoNetwork {
        there: There::of(addresses),
        ..none
    };
    usable(addresses, wanted, Hosting::Alone)
        .map(drop)
        .map_err(all)
}

/// Returns the addresses at which other processes may connect to this node, in the order in which they are tried. One name of
/// `wanted` is enough: the same option is for all nodes, and may name an address of each.
pub(crate) fn usable(
    addresses: &[InterfaceAddress],
    wanted: &[String],
    hosting: Hosting,
) -> Result<Vec<IpAddr>, NoNetwork> {
    let (loopback, others): (Vec<_>, Vec<_>) =
        addresses.iter().partition(|one| one.address.is_loopback());
    let mut usable: Vec<IpAddr> = match hosting {
        Hosting::Shared => loopback.iter().map(|one| one.address).take(1).collect(),
        Hosting::Alone => {
            let is_wanted = |one: &&&InterfaceAddress| {
                wanted.is_empty() || wanted.iter().any(|name| is_on(one, name))
            };
            others
                .iter()
                .filter(is_wanted)
                .map(|one| one.address)
                .collect()
        }
    };
    if usable.is_empty() && hosting == Hosting::Alone && !wanted.is_empty() {
        let there = There::of(addresses);
        let is_name = |name: &String| network(name).is_none();
        return Err(NoNetwork {
            wanted: wanted.to_vec(),
            there: match wanted.iter().all(is_name) {
                true => there.without_addresses(),
                false => there,
            },
        });
    }
    // A node without a network can still hold several daemons.
    if usable.is_empty() {
        usable.extend(loopback.iter().map(|one| one.address));
    }
    // IPv4 first: where both exist, fewer sites filter it.
    usable.sort_by_key(IpAddr::is_ipv6);
    Ok(usable)
}

/// Returns true if an address belongs to what the user has named: an interface, an address, or a network (`10.1.0.0/16`).
fn is_on(one: &InterfaceAddress, name: &str) -> bool {
    one.interface == name
        || network(name).is_some_and(|(network, bits)| match (network, one.address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let rest = 32_u32.saturating_sub(bits);
                (network.to_bits() ^ address.to_bits())
                    .checked_shr(rest)
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let rest = 128_u32.saturating_sub(bits);
                (network.to_bits() ^ address.to_bits())
                    .checked_shr(rest)
                    .unwrap_or(0)
                    == 0
            }
            _ => false,
        })
}

/// Reads an address, or a network: its address and the number of its bits. `None` for anything else, such as an interface.
fn network(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u32>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let all = match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    };
    let bits = bits.unwrap_or(all);
    (bits <= all).then_some((address, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &[(&str, &str)]) -> Vec<InterfaceAddress> {
        let one = |(interface, address): &(&str, &str)| InterfaceAddress {
            interface: (*interface).to_owned(),
            address: address.parse().unwrap(),
        };
        list.iter().map(one).collect()
    }

    /// The interfaces and addresses of a node, the networks that are asked for, and whether the node is alone on its host.
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, Hosting);

    #[test]
    fn networks_select_addresses() {
        let node = [
            ("lo", "127.0.0.1"),
            ("lo", "::1"),
            ("eth0", "fd00::3"),
            ("eth0", "10.1.2.3"),
            ("ib0", "10.2.2.3"),
        ];
        let alone = [("lo", "127.0.0.1"), ("lo", "::1")];
        let cases: &[Case<'_>] = &[
            (&node, "", Hosting::Alone),
            (&node, "eth0", Hosting::Alone),
            (&node, "ib0", Hosting::Alone),
            (&node, "10.1.2.3", Hosting::Alone),
            (&node, "fd00:0::3", Hosting::Alone),
            // An address of each node.
            (&node, "10.2.2.2,10.2.2.3,10.2.2.4", Hosting::Alone),
            (&node, "10.2.0.0/16", Hosting::Alone),
            (&node, "10.0.0.0/8", Hosting::Alone),
            (&node, "fd00::/16", Hosting::Alone),
            (&node, "0.0.0.0/0", Hosting::Alone),
            (&node, "ib0,fd00::/64", Hosting::Alone),
            (&node, "10.2.2.0/33", Hosting::Alone),
            (&node, "ib7", Hosting::Alone),
            (&node, "ib7,10.3.0.0/16", Hosting::Alone),
            (&node, "10.1.2.4", Hosting::Alone),
            (&node, "lo", Hosting::Alone),
            (&node, "", Hosting::Shared),
            (&node, "ib7", Hosting::Shared),
            (&alone, "", Hosting::Alone),
            (&alone, "eth0", Hosting::Alone),
            (&[], "", Hosting::Alone),
        ];
        let rows = cases.iter().map(|(node, wanted, hosting)| {
            let wanted: Vec<String> = wanted.split_terminator(',').map(str::to_owned).collect();
            let found = match usable(&addresses(node), &wanted, *hosting) {
                Ok(found) => found
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(" "),
                Err(error) => error.to_string(),
            };
            format!("{hosting:?} {}: {found}", wanted.join(","))
        });
        insta::assert_snapshot!(rows.collect::<Vec<_>>().join("\n"), @"
        Alone : 10.1.2.3 10.2.2.3 fd00::3
        Alone eth0: 10.1.2.3 fd00::3
        Alone ib0: 10.2.2.3
        Alone 10.1.2.3: 10.1.2.3
        Alone fd00:0::3: fd00::3
        Alone 10.2.2.2,10.2.2.3,10.2.2.4: 10.2.2.3
        Alone 10.2.0.0/16: 10.2.2.3
        Alone 10.0.0.0/8: 10.1.2.3 10.2.2.3
        Alone fd00::/16: fd00::3
        Alone 0.0.0.0/0: 10.1.2.3 10.2.2.3
        Alone ib0,fd00::/64: 10.2.2.3 fd00::3
        Alone 10.2.2.0/33: it has no network `10.2.2.0/33`: its networks are `eth0`, `ib0`
        Alone ib7: it has no network `ib7`: its networks are `eth0`, `ib0`
        Alone ib7,10.3.0.0/16: it has no network `ib7,10.3.0.0/16`: its networks are `eth0` (fd00::3, 10.1.2.3), `ib0` (10.2.2.3)
        Alone 10.1.2.4: it has no network `10.1.2.4`: its networks are `eth0` (fd00::3, 10.1.2.3), `ib0` (10.2.2.3)
        Alone lo: it has no network `lo`: its networks are `eth0`, `ib0`
        Shared : 127.0.0.1
        Shared ib7: 127.0.0.1
        Alone : 127.0.0.1 ::1
        Alone eth0: it has no network `eth0`: its networks are none
        Alone :
        ");
    }
}
