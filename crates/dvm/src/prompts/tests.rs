use super::*;

fn asked(text: &str) -> Asked {
    Asked::new(text.to_owned(), None)
}

/// Prompts of start commands. Each step returns what it asks for, as text.
#[derive(Default)]
struct Desk(Prompts);

impl Desk {
    fn handle(&mut self, input: Input) -> String {
        self.0.handle(input);
        let mut text = Vec::new();
        while let Some(output) = self.0.poll() {
            text.push(match output {
                Output::Show(prompt) => {
                    format!("show {} of {}", prompt.id.0, prompt.host)
                }
                Output::Withdraw(id) => format!("withdraw {}", id.0),
                Output::Answer(front, answer) => {
                    let answer = answer.as_ref().map(Secret::bytes);
                    let answer = answer.map_or_else(|| "nothing".into(), String::from_utf8_lossy);
                    format!("answer {front}: {answer}")
                }
                Output::Asks(command) => format!("{command} asks"),
                Output::GoesOn(command) => format!("{command} goes on"),
            });
        }
        text.join(", ")
    }

    /// A process that is connected as a front asks for the start command of a node.
    fn ask(&mut self, by: u32, command: CommandId) -> String {
        self.handle(Input::Asked {
            by: FrontId(by),
            command,
            host: format!("n{command}"),
            asked: asked("Password: "),
        })
    }

    fn answer(&mut self, id: u32, text: &str) -> String {
        let answer = Secret::new(text.as_bytes().to_vec());
        self.handle(Input::Answered(PromptId(id), answer))
    }
}

#[test]
fn prompts_are_shown_one_after_another() {
    let mut desk = Desk::default();
    assert_eq!(desk.ask(5, 1), "1 asks, show 1 of n1");
    assert_eq!(desk.ask(6, 2), "2 asks");
    assert_eq!(desk.ask(7, 3), "3 asks");
    assert_eq!(desk.answer(2, "early"), "");
    assert_eq!(
        desk.answer(1, "one"),
        "answer 5: one, 1 goes on, show 2 of n2"
    );
    assert_eq!(desk.answer(1, "again"), "");
    // The same command asks once more, such as after a wrong password.
    assert_eq!(desk.ask(8, 1), "1 asks");
    assert_eq!(desk.answer(2, ""), "answer 6: , 2 goes on, show 3 of n3");
    let none = Input::Answered(PromptId(3), None);
    assert_eq!(
        desk.handle(none),
        "answer 7: nothing, 3 goes on, show 4 of n1"
    );
    assert_eq!(desk.answer(4, "x"), "answer 8: x, 1 goes on");
}

#[test]
fn a_command_with_two_prompts_goes_on_after_both() {
    let mut desk = Desk::default();
    desk.ask(5, 1);
    assert_eq!(desk.ask(6, 1), "");
    assert_eq!(desk.answer(1, "a"), "answer 5: a, show 2 of n1");
    assert_eq!(desk.answer(2, "b"), "answer 6: b, 1 goes on");
}

#[test]
fn a_prompt_ends_with_the_process_that_asks() {
    let mut desk = Desk::default();
    desk.ask(5, 1);
    desk.ask(6, 2);
    desk.ask(7, 3);
    assert_eq!(
        desk.handle(Input::Lost(FrontId(6))),
        "answer 6: nothing, 2 goes on"
    );
    assert_eq!(
        desk.handle(Input::Lost(FrontId(5))),
        "withdraw 1, answer 5: nothing, 1 goes on, show 3 of n3"
    );
    assert_eq!(desk.answer(1, "late"), "");
    assert_eq!(desk.handle(Input::Lost(FrontId(5))), "");
}

#[test]
fn without_a_front_there_is_no_answer() {
    let mut desk = Desk::default();
    desk.ask(5, 1);
    desk.ask(6, 2);
    assert_eq!(
        desk.handle(Input::NobodyAnswers),
        "answer 5: nothing, 1 goes on, answer 6: nothing, 2 goes on"
    );
    assert_eq!(desk.ask(7, 1), "answer 7: nothing");
    assert_eq!(desk.answer(1, "late"), "");
}

#[test]
fn what_waits_is_bounded() {
    let mut desk = Desk::default();
    let most = u32::try_from(MAX_PROMPTS).unwrap();
    for number in 0..most {
        desk.ask(number, number);
    }
    assert_eq!(desk.ask(most, most), format!("answer {most}: nothing"));
    let long = "ä".repeat(TEXT_MAX);
    assert_eq!(asked(&long).text.len(), TEXT_MAX);
    assert_eq!(asked(&format!("a{long}")).text.len(), TEXT_MAX - 1);
    assert!(Secret::new(vec![b'x'; ANSWER_MAX]).is_some());
    assert!(Secret::new(vec![b'x'; ANSWER_MAX + 1]).is_none());
}

/// The words of OpenSSH 7.4 to 10.0.
#[test]
fn the_terminal_shows_what_is_no_secret() {
    use PromptKind::{Confirm, Hidden, Notice, Shown};
    for (text, hint, kind) in [
        ("me@n1's password: ", None, Hidden),
        ("(me@n1) Password: ", None, Hidden),
        ("(me@n1) Verification code: ", None, Hidden),
        (
            "Enter passphrase for key '/home/me/.ssh/id_ed25519': ",
            None,
            Hidden,
        ),
        (
            "The authenticity of host 'n1 (10.0.0.1)' can't be established.\nED25519 key fingerprint is SHA256:x.\n\
             Are you sure you want to continue connecting (yes/no)? ",
            None,
            Shown,
        ),
        (
            "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
            None,
            Shown,
        ),
        ("Please type 'yes' or 'no': ", None, Shown),
        ("Please type 'yes', 'no' or the fingerprint: ", None, Shown),
        ("Allow shared connection to n1? ", Some("confirm"), Confirm),
        (
            "Confirm user presence for key ED25519-SK",
            Some("none"),
            Notice,
        ),
        ("Enter PIN for ED25519-SK key: ", Some("other"), Hidden),
    ] {
        assert_eq!(asked_with(text, hint), kind, "{text}");
    }
    fn asked_with(text: &str, hint: Option<&str>) -> PromptKind {
        Asked::new(text.to_owned(), hint).kind
    }
}

#[test]
fn an_answer_is_not_shown() {
    let answer = Secret::new(b"hunter2".to_vec());
    let input = Input::Answered(PromptId(1), answer);
    assert_eq!(format!("{input:?}"), "Answered(PromptId(1), Some(Secret))");
}
