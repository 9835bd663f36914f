//! Messages about tools that control the launcher.

use super::*;

#[test]
fn tools_that_control_the_launcher() {
    let small = Job::small();
    let text = [
        note(&Note::WaitsForTool, &small.scene()),
        refused(&Refusal::ToolEnded),
        refused(&Refusal::Directive("pmix.\u{1b}[2J".to_owned())),
    ];
    let text = text.map(|message| shown(&message)).concat();
    insta::assert_snapshot!(text, @r"
    job/waits-for-tool Note: the job waits for a tool, because PMIX_LAUNCHER_PAUSE_FOR_TOOL is set
      help: a tool finds the launcher by its pid; Ctrl-C ends the wait
    job/tool-ended Error: the tool that started the launcher has ended before it let the job begin
      effect: the job was not started
    job/tool-directive Error: cannot carry out a directive of the tool that started the launcher: `pmix.\u{1b}[2J`
      effect: the job was not started
    ");
}
