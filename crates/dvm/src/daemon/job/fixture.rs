//! A daemon and a job for tests of this directory.

use base::{JobId, NodeId, Rank, Topology};

use crate::{
    daemon::{Daemon, DaemonConfig, ServiceConfig},
    place::Placed,
    proto::{Launch, Universe},
    spec::{
        App, Destination, EndPolicy, Family, FrontInput, HoldPlan, OpenMode, StdinTarget, StdioPlan,
    },
};

/// A daemon that serves PMIx.
pub(super) fn daemon() -> Daemon {
    Daemon::new(DaemonConfig {
        node: NodeId(0),
        host: "node".into(),
        topology: Topology::flat(4),
        descriptors: 100,
        service: Some(ServiceConfig {
            port: 1234,
            uid: 1000,
            gid: 1000,
            name: "rally-node-77".into(),
            session_dir: None,
        }),
    })
}

/// A job of ranks that write to nobody.
pub(super) fn launch(number: u32, ranks: u32) -> Launch {
    let placed = |rank| Placed {
        rank: Rank(rank),
        app: 0,
        app_rank: rank,
        local_rank: rank,
        cpus: None,
    };
    Launch {
        job: JobId(number),
        nspace: format!("rally-node-77@{number}"),
        universe: Universe {
            slots: 4,
            said: None,
        },
        slots: 4,
        offset: 0,
        parent: None,
        size: ranks,
        apps: vec![App {
            program: "./a".into(),
            args: vec!["1".into()],
            env: Vec::new(),
            directory: "/home".into(),
            search: "/bin".into(),
            umask: None,
            tracers: crate::spec::Tracers::Ancestors,
        }],
        procs: (0..ranks).map(placed).collect(),
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
        process_mapping: None,
        front_pid: 77,
        variables: [Family::OpenMpi].into(),
        gpus: None,
    }
}
