//! What jobs ask for, and what they need.

use std::collections::BTreeSet;

use base::{NodeId, Rank, RankSet};
use dvm::{
    machine::{OutputFiles, Submission, Wishes},
    place::{self, AppRequest, Request},
    queue::{Array, Dependency, DependencyKind, Hold, Requeue, Sharing},
    spec::{
        App, EndPolicy, GpuKind, GpuPlan, GpuShare, HoldPlan, JobSpec, MapFor, Recorder,
        ResourceLimits, ResourceNeeds, StdinTarget, StdioPlan, Tracers,
    },
};

pub(super) use super::needs::Shape;
use super::{model::Model, needs::Map};
use crate::rng::Rng;

impl Shape {
    pub(super) fn any(rng: &mut Rng) -> Self {
        let map = match rng.below(12) {
            0 => Map::Cpus(2),
            1 => Map::PerNode(rng.number(1, 2)),
            2 => Map::Whole,
            _ => Map::Slots,
        };
        let procs = match rng.below(12) {
            0 => None,
            1 => Some(rng.number(1, 12)),
            2..5 => Some(rng.number(2, 4)),
            _ => Some(1),
        };
        let some = |rng: &mut Rng| (0..2).map(|_| NodeId(rng.number(0, 2))).collect();
        Self {
            procs,
            map,
            gpus: if rng.chance(20) { rng.number(1, 2) } else { 0 },
            only: rng.chance(10).then(|| some(rng)),
            sharing: Sharing::Shared,
        }
    }

    /// Returns the limits of what the procs of a node use together. Whatever happens, each run has those of its job.
    pub(super) fn limits(&self) -> ResourceLimits {
        ResourceLimits {
            memory: None,
            milli_cpus: self.procs.map(|procs| procs * 500),
        }
    }

    pub(super) fn spec(&self) -> Box<JobSpec> {
        let map = match self.map {
            Map::Slots => None,
            Map::Cpus(each) => Some(format!("slot:PE={each}")),
            Map::PerNode(each) => Some(format!("ppr:{each}:node")),
            Map::Whole => Some("ppr:1:numa".to_owned()),
        };
        let hosts = self.only.as_ref().map(|only| {
            let names = only.iter().map(|id| format!("n{id}"));
            names.collect::<Vec<_>>()
        });
        let hosts = hosts.map(|names| names.iter().map(String::as_str).collect());
        Box::new(JobSpec {
            limits: self.limits(),
            apps: vec![App {
                program: "./a".into(),
                args: Vec::new(),
                env: dvm::spec::Environment::default(),
                directory: "/".into(),
                search: "/bin".into(),
                elsewhere: std::sync::Arc::default(),
                umask: 0o022,
                tracers: Tracers::default(),
            }],
            placement: Request {
                apps: vec![AppRequest {
                    count: self.procs,
                    hosts,
                    ..AppRequest::default()
                }],
                map_by: map.and_then(|map| place::map_by(&map).ok()),
                ..Request::default()
            },
            universe: None,
            stdin: StdinTarget::None,
            stdio: StdioPlan::default(),
            end: EndPolicy::default(),
            hold: HoldPlan::NOWHERE,
            variables: BTreeSet::new(),
            gpus: (self.gpus > 0).then(|| GpuPlan {
                kind: GpuKind::Nvidia,
                available: Vec::new(),
                share: GpuShare::Each(self.gpus),
            }),
            preload: None,
            map: MapFor::Launch,
            watch: None,
            needs: ResourceNeeds::default(),
            sets: Default::default(),
            recorder: Recorder::Off,
        })
    }
}

/// Makes a job that a front may submit.
pub(super) fn submission(rng: &mut Rng, model: &Model) -> (Submission, Shape) {
    let mut shape = Shape::any(rng);
    if rng.chance(10) {
        shape.sharing = Sharing::Exclusive;
    }
    let mut after = Vec::new();
    if rng.chance(30) {
        for _ in 0..rng.length(1, 3) {
            after.push(Dependency {
                on: some_job(rng, model),
                kind: rng.pick(DependencyKind::ALL),
            });
        }
    }
    let first = rng.number(0, 1);
    let array = rng.chance(35).then(|| Array {
        indexes: (0..rng.number(1, 7))
            .map(|index| Rank(index * 2 + first))
            .collect::<RankSet>(),
        running_max: rng.chance(30).then(|| rng.number(1, 3)),
    });
    let wishes = Wishes {
        priority: rng.pick([0, 0, 0, 5, -5]),
        after,
        array,
        hold: rng.pick([Hold::No, Hold::No, Hold::No, Hold::No, Hold::ByUser]),
        on_node_loss: rng.pick([Requeue::Never, Requeue::OnNodeLoss]),
        sharing: shape.sharing,
    };
    let submission = Submission {
        spec: shape.spec(),
        name: "a".to_owned(),
        command: "./a".to_owned(),
        wishes,
        output: OutputFiles {
            stdout: "/out-%j-%i".into(),
            stderr: None,
        },
    };
    (submission, shape)
}

/// Returns the number of a job: mostly a recent one, sometimes one that does not exist.
pub(super) fn some_job(rng: &mut Rng, model: &Model) -> base::JobId {
    let live: Vec<u32> = model.jobs.keys().map(|id| id.0).collect();
    let number = match rng.below(10) {
        0 => rng.number(0, model.next + 1),
        1..4 => rng.number(model.next.saturating_sub(8), model.next),
        4..6 => {
            let past: Vec<u32> = model.past.keys().map(|id| id.0).collect();
            let place = rng.length(0, past.len().saturating_sub(1));
            past.get(place).copied().unwrap_or(1)
        }
        _ => {
            let place = rng.length(0, live.len().saturating_sub(1));
            live.get(place).copied().unwrap_or(1)
        }
    };
    base::JobId(number)
}
