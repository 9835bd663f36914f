//! Program files of `srun --multi-prog`.

use super::*;

#[test]
fn ranks_are_counted_within_their_line() {
    let programs = |size: &str, text: &str| {
        let line = format!("srun {size} --multi-prog f");
        let run = Place::new().file("f", text).run(&line);
        let apps = run.spec.apps.iter().zip(&run.spec.placement.apps);
        let shown = apps.map(|(app, placed)| {
            let words = app.args.join(OsStr::new(" "));
            format!("{}*{}", placed.count.unwrap(), words.display())
        });
        shown.collect::<Vec<_>>().join(" ")
    };
    let cases = [
        ("-n 6", "0-5 a %o", "1*0 1*1 1*2 1*3 1*4 1*5"),
        ("-n 6", "* a %o", "1*0 1*1 1*2 1*3 1*4 1*5"),
        (
            "-n 6",
            "0,2,4 a x%o\n1,3,5 a y%o",
            "1*x0 1*y0 1*x1 1*y1 1*x2 1*y2",
        ),
        ("-n 6", "4-5 a x%o\n* a z", "4*z 1*x0 1*x1"),
        // Without `-n`, the file determines the number of ranks.
        ("", "0-2 a\n3 b", "3* 1*"),
        ("", "2 a\n* b", "2* 1*"),
        ("", "* a", "1*"),
        // The time is not quadratic in the number of ranks.
        ("-n 100000", "0-99999 a", "100000*"),
    ];
    for (size, text, expected) in cases {
        assert_eq!(programs(size, text), expected, "{text}");
    }
}

#[test]
fn a_rank_has_one_line() {
    let said = |text: &str| {
        let place = Place::new().file("f", text);
        place.complaint("srun -n 3 --multi-prog f")
    };
    let texts = [
        "0-1 a\n# more\n1-2 b",
        "* a\n1 b",
        "0-2 a\n3-9 b",
        "0 a\n2 b",
    ];
    insta::assert_snapshot!(texts.map(said).join("\n"), @"
    $ srun -n 3 --multi-prog f
    error: cannot read the file of programs `f`, line 3: there is another line for rank 1
      help: `rally help mpmd` shows the form
    [121 cli/bad-app-file]

    $ srun -n 3 --multi-prog f
    error: cannot read the file of programs `f`, line 2: the line of `*` is for all remaining ranks, and must be the last
      help: `rally help mpmd` shows the form
    [121 cli/bad-app-file]

    $ srun -n 3 --multi-prog f
    error: cannot read the file of programs `f`, line 2: the job has no rank 3: its size is 3
      help: `rally help mpmd` shows the form
    [121 cli/bad-app-file]

    $ srun -n 3 --multi-prog f
    error: cannot read the file of programs `f`, line 2: there is no line for rank 1
      help: `rally help mpmd` shows the form
    [121 cli/bad-app-file]
    ");
}
