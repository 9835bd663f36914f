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
