use super::*;

#[test]
fn a_hostile_name_is_one_cell() {
    let name = "a\nJOB  1\u{1b}[2J".to_owned();
    let text = table(["NAME", "STATE"], [[name, "held".to_owned()]]);
    insta::assert_snapshot!(text, @r"
    NAME                STATE
    a\nJOB  1\u{1b}[2J  held
    ");
}
