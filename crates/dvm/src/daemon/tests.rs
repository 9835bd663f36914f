//! Helpers that build a daemon and a job, for the tests of its submodules.

use base::{JobId, NodeId, Topology};

use crate::{
    alloc::{AllocatedNode, Allocation, Slots},
    daemon::{Daemon, DaemonConfig, ServiceConfig},
    place::{AppRequest, BindTarget, Oversubscribe, Request, Topologies, place},
    proto::{Launch, LaunchNode, NodeLoad, Universe},
    spec::{
        App, Destination, EndPolicy, Family, FrontInput, HoldPlan, OpenMode, StdinTarget, StdioPlan,
    },
};

/// Creates a daemon that serves PMIx, on node 0.
pub(super) fn daemon() -> Daemon {
    daemon_of(0, "node")
}

pub(super) fn daemon_of(node: u32, host: &str) -> Daemon {
    Daemon::new(DaemonConfig {
        resources: Default::default(),
        node: NodeId(node),
        host: host.to_owned(),
        topology: Topology::flat(4),
        descriptors: 100,
        service: Some(ServiceConfig {
            port: 1234,
            uid: 1000,
            gid: 1000,
            name: "rally-node-77".into(),
            session_dir: None,
            tools: crate::Tools::Refused,
        }),
    })
}

/// Creates a job with one app on a single node, whose output is discarded.
pub(super) fn launch(number: u32, ranks: u32) -> Launch {
    launch_of(number, &[ranks], &["node"])
}

/// Creates a job with `apps` of the given numbers of ranks, on nodes with four slots each that are filled in order. A
/// node with an empty name is not used.
pub(super) fn launch_of(number: u32, apps: &[u32], hosts: &[&str]) -> Launch {
    launch_bound(number, apps, hosts, BindTarget::None)
}

/// Creates a job like [`launch_of`], with ranks bound to `bind_to`.
pub(super) fn launch_bound(
    number: u32,
    apps: &[u32],
    hosts: &[&str],
    bind_to: BindTarget,
) -> Launch {
    let node = |host: &&str| AllocatedNode {
        name: (*host).to_owned(),
        slots: Slots::Explicit(4),
        max_slots: None,
        granted: None,
    };
    let allocation = Allocation {
        nodes: hosts.iter().map(node).collect(),
    };
    let app = |count: &u32| AppRequest {
        count: Some(*count),
        hosts: Some(
            hosts
                .iter()
                .copied()
                .filter(|host| !host.is_empty())
                .collect(),
        ),
        ..AppRequest::default()
    };
    let request = Request {
        apps: apps.iter().map(app).collect(),
        bind_to: Some(bind_to.into()),
        oversubscribe: Oversubscribe::Allow,
        ..Request::default()
    };
    let map = place(
        &request,
        &allocation,
        &Topologies::uniform(Topology::flat(4)),
    )
    .unwrap();
    let node = |id: NodeId| LaunchNode {
        host: hosts[id.0 as usize].to_owned(),
        load: NodeLoad {
            slots: 4,
            ..NodeLoad::default()
        },
    };
    let app = App {
        program: "./a".into(),
        args: vec!["1".into()],
        env: crate::spec::Environment::default(),
        directory: "/home".into(),
        search: "/bin".into(),
        elsewhere: std::sync::Arc::default(),
        umask: 0o022,
        tracers: crate::spec::Tracers::Ancestors,
    };
    Launch {
        granted_gpus: Default::default(),
        beside: None,
        sets: Default::default(),
        recorder: crate::spec::Recorder::Off,
        limits: Default::default(),
        debugged: None,
        preloaded: None,
        job: JobId(number),
        nspace: format!("rally-node-77@{number}"),
        universe: Universe {
            slots: 4,
            said: None,
        },
        offset: 0,
        parent: None,
        apps: vec![app; apps.len()],
        nodes: map.nodes().map(node).collect(),
        map,
        stdin: StdinTarget::None,
        stdio: StdioPlan {
            stdout: Destination::Discard,
            stderr: Destination::Discard,
            open: OpenMode::Append,
            pty: None,
            lines: None,
            input: FrontInput::Readable,
        },
        end: EndPolicy::default(),
        hold: HoldPlan::NOWHERE,
        front_pid: 77,
        variables: [Family::OpenMpi].into(),
        gpus: None,
    }
}

/// Returns the same job, on nodes that each already have `others` procs of other jobs.
pub(super) fn beside(launch: Launch, others: u32) -> Launch {
    let nodes = launch.nodes.iter().cloned().map(|node| LaunchNode {
        load: NodeLoad {
            first: others,
            others,
            ..node.load
        },
        ..node
    });
    Launch {
        nodes: nodes.collect(),
        ..launch
    }
}
