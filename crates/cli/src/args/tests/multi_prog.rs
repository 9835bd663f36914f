//! Files of programs, as `srun --multi-prog` reads them.

use super::*;

#[test]
fn ranks_are_counted_within_their_line() {
    let programs = |size: u32, text: &str| {
        let line = format!("srun -n {size} --multi-prog f");
        let run = Place::new().file("f", text).run(&line);
        let apps = run.spec.apps.iter().zip(&run.spec.placement.apps);
        let shown = apps.map(|(app, placed)| {
            let words = app.args.join(OsStr::new(" "));
            format!("{}*{}", placed.count.unwrap(), words.display())
        });
        shown.collect::<Vec<_>>().join(" ")
    };
    let cases = [
        (6, "0-5 a %o", "1*0 1*1 1*2 1*3 1*4 1*5"),
        (6, "* a %o", "1*0 1*1 1*2 1*3 1*4 1*5"),
        (
            6,
            "0,2,4 a x%o\n1,3,5 a y%o",
            "1*x0 1*y0 1*x1 1*y1 1*x2 1*y2",
        ),
        // The first line that names a rank counts, and the others count it as well.
        (
            6,
            "1-2 a x%o\n0-3 a y%o\n* a z%o",
            "1*y0 1*x0 1*x1 1*y3 1*z4 1*z5",
        ),
        (6, "* a z\n4-9 a x%o\n7 a y", "4*z 1*x0 1*x1"),
        // It takes no time for each pair of ranks.
        (100_000, "0-99999 a", "100000*"),
    ];
    for (size, text, expected) in cases {
        assert_eq!(programs(size, text), expected, "{text}");
    }
}
