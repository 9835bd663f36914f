//! Ends of the machine, and what the next one finds.

use super::*;

fn requeued(submission: Submission) -> Submission {
    Submission {
        wishes: Wishes {
            on_node_loss: Requeue::OnNodeLoss,
            ..submission.wishes
        },
        ..submission
    }
}

#[test]
fn a_job_that_may_run_again_waits_when_the_machine_is_ended() {
    for by in [Down::Now, Down::WhenIdle] {
        let mut world = World::new(&[3]);
        let again = world.submitted(requeued(job(1)));
        let canceled = world.submitted(requeued(job(1)));
        let once = world.submitted(job(1));
        world.store();
        let runs: Vec<JobId> = world.launches().iter().map(|(_, run)| *run).collect();
        world.ask(Ask::Cancel(canceled, None));
        match by {
            Down::Now => world.ask(Ask::Down(Down::Now)),
            // As at SIGTERM.
            _ => {
                world.machine.terminate(world.now);
                world.pump();
            }
        }
        for run in &runs {
            assert!(world.outputs.contains(&MachineOutput::End(*run)));
            world.ends(*run, Cause::Ended(EndReason::Canceled));
        }
        world.store();
        assert!(world.machine.is_over());
        assert_eq!(world.past(once).unwrap().state(), State::Failed);
        assert_eq!(world.past(canceled).unwrap().state(), State::Canceled);

        let mut world = world.restart();
        assert_eq!(world.machine.restored.waiting, 1);
        world.store();
        let launches = world.launches();
        assert_eq!(launches.len(), 1);
        assert_eq!(launches[0].0, format!("{again} on 1@n0"));
        // It goes on with its output file.
        assert!(world.record(again).requeued.contains(Rank(0)));
    }
}

#[test]
fn tasks_that_end_before_the_machine_are_over() {
    let mut world = World::new(&[3]);
    let id = world.submitted(requeued(array(3)));
    world.store();
    let runs = world.launches();
    world.ask(Ask::Down(Down::Now));
    // That changes nothing.
    world.ask(Ask::Down(Down::WhenIdle));
    world.ends(runs[0].1, Cause::Success);
    world.ends(runs[1].1, failed());
    world.ends(runs[2].1, Cause::Ended(EndReason::Canceled));
    world.store();
    assert!(world.machine.is_over());
    let world = world.restart();
    let tasks = &world.machine.jobs[&id].record.tasks;
    assert_eq!(tasks.succeeded.to_string(), "1");
    assert_eq!(tasks.failed.to_string(), "2");
    assert_eq!(tasks.running.to_string(), "3");
}

#[test]
fn a_large_array_is_canceled_before_its_start_is_stored() {
    let tasks = 4000;
    let mut world = World::new(&[tasks]);
    // Its start is being stored.
    world.submit(array(tasks));
    let id = JobId(1);
    world.ask(Ask::Cancel(id, None));
    world.store();
    assert!(world.launches().is_empty());
    let past = world.past(id).unwrap();
    assert_eq!(past.tasks.canceled.len(), 4000);
}

#[test]
fn requeues_count_over_deaths_of_the_machine() {
    let mut world = World::new(&[1]);
    let id = world.submitted(requeued(job(1)));
    let lost = || Cause::NodeLost {
        node: NodeId(0),
        why: "no answer".to_owned(),
    };
    for round in 1..queue::REQUEUES_MAX {
        world.store();
        let run = world.launches()[0].1;
        if round % 2 == 0 {
            // It is lost with its node.
            world.ends(run, lost());
        } else {
            // It is lost with its machine.
            world.store();
            world = world.restart();
        }
        assert_eq!(world.record(id).wishes.hold, Hold::No, "{round}");
    }
    world.store();
    assert_eq!(world.launches().len(), 1);
    world.store();
    let mut world = world.restart();
    assert_eq!(world.record(id).wishes.hold, Hold::ByRequeues);
    // The next machine holds it too, until its user releases it.
    world.store();
    let mut world = world.restart();
    assert_eq!(world.record(id).wishes.hold, Hold::ByRequeues);
    world.ask(Ask::Release(id));
    assert_eq!(world.reply(), Reply::Done);
    world.store();
    let run = world.launches()[0].1;
    world.ends(run, lost());
    world.store();
    assert_eq!(world.record(id).wishes.hold, Hold::No, "it counts anew");
}

#[test]
fn jobs_that_depend_on_an_unreadable_one_wait() {
    let mut world = World::new(&[1]);
    let held = |submission| Submission {
        wishes: Wishes {
            hold: Hold::ByUser,
            ..Wishes::default()
        },
        ..submission
    };
    let record = world.submitted(held(job(1)));
    let spec = world.submitted(held(job(1)));
    let after = |on, kind| Submission {
        wishes: Wishes {
            after: vec![Dependency { on, kind }],
            ..Wishes::default()
        },
        ..job(1)
    };
    let mut waiting = Vec::new();
    for on in [record, spec] {
        for kind in DependencyKind::ALL {
            waiting.push((on, kind, world.submitted(after(on, kind))));
        }
    }
    let garbage = Bytes::from_static(b"\x02garbage");
    world.stored.insert(Key::Job(record), garbage.clone());
    world.stored.insert(Key::Spec(spec), garbage.clone());
    let mut world = world.restart();
    let expected = [Damage::Record(record), Damage::Spec(spec)];
    assert_eq!(world.machine.restored.damaged, expected, "each once");
    world.store();
    assert!(world.launches().is_empty());
    for (on, kind, id) in waiting {
        world.ask(Ask::Explain(id));
        let Reply::Explained(explained) = world.reply() else {
            panic!()
        };
        assert_eq!(
            explained.why,
            Reason::Blocked(vec![Dependency { on, kind }])
        );
    }
    // Another version may read them.
    assert_eq!(world.stored[&Key::Job(record)], garbage);
    assert!(world.stored.contains_key(&Key::Spec(record)));
    assert_eq!(world.stored[&Key::Spec(spec)], garbage);
    assert!(world.stored.contains_key(&Key::Job(spec)));
}

#[test]
fn no_number_is_given_twice_whatever_is_damaged() {
    let garbage = Bytes::from_static(b"\x02");
    for key in [Key::Job, Key::Spec, Key::Past] {
        let stored = [
            (Key::Next, garbage.clone()),
            (key(JobId(7)), garbage.clone()),
        ];
        let setup = Setup {
            limits: Default::default(),
            declared: Default::default(),
            name: "main".to_owned(),
            epoch: Wall(0),
            nodes: vec!["n0".to_owned()],
            local: None,
            stored: stored.to_vec(),
            model: None,
        };
        let mut world = World::new(&[1]);
        world.machine = Machine::new(&setup);
        world.stored = stored.into_iter().collect();
        let now = world.now;
        world.machine.node_up(
            now,
            NodeId(0),
            (1, Slots::Explicit(1)),
            &NodeResources::default(),
        );
        assert_eq!(world.machine.restored.damaged[0], Damage::Next);
        assert_eq!(world.submitted(job(1)), JobId(8));
    }
}

#[test]
fn records_of_the_version_before_are_read() {
    let mut world = World::new(&[1]);
    let id = world.submitted(Submission {
        wishes: Wishes {
            hold: Hold::ByUser,
            ..Wishes::default()
        },
        ..job(1)
    });
    for (key, value) in &mut world.stored {
        let mut old = value.to_vec();
        old[0] = 1;
        if matches!(key, Key::Job(_)) {
            assert_eq!(old.pop(), Some(0), "no task was requeued");
        }
        *value = old.into();
    }
    let before = world.record(id);
    let mut world = world.restart();
    assert_eq!(world.machine.restored.damaged, []);
    assert_eq!(world.record(id), before);
    assert_eq!(world.submitted(job(1)), JobId(2));
}

#[test]
fn a_hung_store_does_not_keep_a_machine_that_ends() {
    let mut world = World::new(&[1]);
    world.submitted(job(1));
    world.store();
    let run = world.launches()[0].1;
    world.ask(Ask::Down(Down::Now));
    assert!(world.batch.is_none());
    world.now = Time::ZERO + STORE_MAX;
    world.ends(run, Cause::Ended(EndReason::Canceled));
    assert!(world.batch.is_some(), "its end is being stored");
    assert!(!world.machine.is_over());
    let due = world.machine.deadline().unwrap();
    assert_eq!(due, world.now + STORE_MAX);
    world.now = due;
    world.machine.tick(due);
    world.pump();
    assert!(world.machine.is_over());
    assert_eq!(world.machine.deadline(), None);
    world.ask(Ask::Status);
    world
        .outputs
        .retain(|output| !matches!(output, MachineOutput::Reply(_, Reply::Done)));
    let Reply::Status(status) = world.reply() else {
        panic!()
    };
    assert_eq!(status.trouble.unwrap(), "it has not answered for 5 s");
    // The next machine takes what is stored.
    let world = world.restart();
    assert_eq!(world.machine.restored.lost, [JobId(1)]);
}

#[test]
fn a_machine_that_goes_on_waits_for_a_slow_store() {
    let mut world = World::new(&[1]);
    world.submit(job(1));
    assert_eq!(world.machine.deadline(), None);
    world.ask(Ask::Down(Down::WhenIdle));
    // The start of the job is being stored.
    assert_eq!(world.machine.deadline(), None);
    assert!(!world.machine.is_over());
}

/// A machine that fronts have for themselves ends with the last of them, and no other front ends it.
#[test]
fn a_machine_ends_with_the_fronts_that_own_it() {
    let mut world = World::new(&[3]);
    let (second, other) = (FrontId(8), FrontId(9));
    let id = world.submitted(job(1));
    world.store();
    let (_, run) = world.launches()[0];
    for front in [FRONT, second] {
        world.machine.ask(world.now, front, Ask::EndWithFront);
    }
    for gone in [other, FRONT] {
        world.machine.front_lost(world.now, gone);
        world.pump();
        assert!(!world.outputs.contains(&MachineOutput::End(run)), "{gone}");
    }
    world.machine.front_lost(world.now, second);
    world.pump();
    assert!(world.outputs.contains(&MachineOutput::End(run)));
    world.ends(run, Cause::Ended(EndReason::Canceled));
    world.store();
    assert!(world.machine.is_over());
    assert_eq!(world.past(id).unwrap().state(), State::Failed);
}
