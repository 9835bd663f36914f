//! Tests of the arguments that are read from code, as compilers write it.

use calls::Flavor;

use super::*;
use crate::memory::Unreadable;

/// The address of the function.
const START: u64 = 0x1000;
/// The stack pointer before the call; 256 bytes above it can be read.
const STACK: u64 = 0x7000_0000;
/// The difference of addresses in memory from those in the file.
const BIAS: u64 = 0x10_0000;
/// The only memory outside of the stack, as in the file; it cannot be written.
const CONSTANT: u64 = 0x2006;

/// Memory with a number in each word of the stack: its distance from the stack pointer, and 0x100.
struct Words;

impl Memory for Words {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        let word = match address {
            _ if address & !7 == (BIAS + CONSTANT) & !7 => 0x4444_3333_2222_11f0,
            STACK.. if address < STACK + 0x100 => 0x100 + (address & !7) - STACK,
            _ => return Err(Unreadable { address }),
        };
        let from = usize::try_from(address & 7).unwrap();
        let bytes = [word.to_le_bytes(), [0; 8]].concat();
        buffer.copy_from_slice(&bytes[from..from + buffer.len()]);
        Ok(())
    }
}

/// Returns the bytes of some lines, each with its instruction after `#`, and the offset behind the last call.
fn assembled(text: &str) -> (Vec<u8>, u64) {
    let mut code = Vec::new();
    let mut back = 0;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (bytes, instruction) = line.split_once('#').unwrap();
        let bytes = bytes.split_whitespace();
        code.extend(bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap()));
        if instruction.contains("call") || back == 0 && instruction.contains("jmp 800") {
            back = code.len() as u64;
        }
    }
    (code, back)
}

/// Returns the arguments in the order `rdi`, `rsi`, `rdx`, `rcx`, `r8`, `r9`, and the two at the stack pointer. `m` marks those from
/// memory.
fn read(text: &str) -> String {
    let (code, back) = assembled(text);
    shown_arguments(&code, back)
}

fn shown_arguments(code: &[u8], back: u64) -> String {
    let mut registers = [None; 16];
    // rbx, rsp, rbp, r12, r13; the others are not known.
    for (register, value) in [
        (3, 0x33),
        (4, STACK),
        (5, STACK + 0x40),
        (12, 0xc0c0_c0c0_c0c0),
        (13, 0xffff_fffe),
    ] {
        registers[register] = Some(value);
    }
    let caller = Caller {
        code,
        start: START,
        back: START + back,
        bias: BIAS,
        registers,
        changed: STACK - 0x200..STACK + 16,
    };
    let is_writable = |address: u64| address & !7 != (BIAS + CONSTANT) & !7;
    let found = arguments(&caller, &Words, &is_writable);
    let found = found.map(|value| match value {
        Some(Value { word, origin }) => {
            let mark = if origin == Origin::Memory { "m" } else { "" };
            format!("{word:x}{mark}")
        }
        None => "?".to_owned(),
    });
    found.join(" ")
}

#[test]
fn arguments_are_those_that_the_code_leaves_no_doubt_of() {
    let mut wrong = String::new();
    for (name, text, expected) in CASES {
        let found = read(text);
        if found != expected {
            let _ = writeln!(wrong, "{name}: expected {expected}, found {found}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

const CASES: [(&str, &str, &str); 23] = [
    (
        "constants, as without optimization",
        "
  55                       # push %rbp
  48 89 e5                 # mov %rsp,%rbp
  48 83 ec 20              # sub $0x20,%rsp
  48 8d 45 f4              # lea -0xc(%rbp),%rax
  48 83 ec 08              # sub $0x8,%rsp
  6a 01                    # push $0x1
  41 b9 00 00 00 44        # mov $0x44000000,%r9d
  41 b8 08 00 00 00        # mov $0x8,%r8d
  b9 01 00 00 00           # mov $0x1,%ecx
  ba 05 04 00 4c           # mov $0x4c000405,%edx
  48 89 c7                 # mov %rax,%rdi
  31 f6                    # xor %esi,%esi
  ff d0                    # call *%rax
",
        "70000034 0 4c000405 1 8 44000000 1 ?",
    ),
    (
        "variables, as without optimization",
        "
  8b 55 fc                 # mov -0x4(%rbp),%edx
  48 8d 45 f4              # lea -0xc(%rbp),%rax
  6a 01                    # push $0x1
  6a 09                    # push $0x9
  8b 4d f8                 # mov -0x8(%rbp),%ecx
  51                       # push %rcx
  49 89 c1                 # mov %rax,%r9
  c7 45 f0 03 00 00 00     # movl $0x3,-0x10(%rbp)
  44 8b 45 f0              # mov -0x10(%rbp),%r8d
  89 d6                    # mov %edx,%esi
  48 89 c7                 # mov %rax,%rdi
  e8 d9 f7 ff ff           # call 800
",
        "70000034 0m 0m 138m 3 70000034 138m 9",
    ),
    (
        "registers that are preserved, as with optimization",
        "
  8d 4b ff                 # lea -0x1(%rbx),%ecx
  89 da                    # mov %ebx,%edx
  83 f2 01                 # xor $0x1,%edx
  4d 89 e1                 # mov %r12,%r9
  41 b8 ff ff ff ff        # mov $0xffffffff,%r8d
  49 63 f5                 # movslq %r13d,%rsi
  8b 7c 24 08              # mov 0x8(%rsp),%edi
  e8 e3 f7 ff ff           # call 800
",
        "? fffffffffffffffe 32 32 ffffffff c0c0c0c0c0c0 ? ?",
    ),
    (
        "neighbors in a ring",
        "
  8d 43 01                 # lea 0x1(%rbx),%eax
  be 05 00 00 00           # mov $0x5,%esi
  99                       # cltd
  f7 fe                    # idiv %esi
  89 d1                    # mov %edx,%ecx
  41 89 c0                 # mov %eax,%r8d
  b8 f9 ff ff ff           # mov $0xfffffff9,%eax
  99                       # cltd
  f7 fe                    # idiv %esi
  41 89 d1                 # mov %edx,%r9d
  31 ff                    # xor %edi,%edi
  99                       # cltd
  f7 ff                    # idiv %edi
  e8 db f7 ff ff           # call 800
",
        "0 5 ? 2 a fffffffe ? ?",
    ),
    (
        "products and shifts",
        "
  89 da                    # mov %ebx,%edx
  c1 e2 02                 # shl $0x2,%edx
  6b cb 03                 # imul $0x3,%ebx,%ecx
  be f8 ff ff ff           # mov $0xfffffff8,%esi
  d1 fe                    # sar %esi
  bf f8 ff ff ff           # mov $0xfffffff8,%edi
  c1 ef 1c                 # shr $0x1c,%edi
  41 b8 fd ff ff ff        # mov $0xfffffffd,%r8d
  44 0f af c3              # imul %ebx,%r8d
  49 c7 c1 ff ff ff ff     # mov $0xffffffffffffffff,%r9
  49 c1 f9 02              # sar $0x2,%r9
  d3 e0                    # shl %cl,%eax
  e8 cd f7 ff ff           # call 800
",
        "f fffffffc cc 99 ffffff67 ffffffffffffffff ? ?",
    ),
    (
        "a call in between",
        "
  ba 07 00 00 00           # mov $0x7,%edx
  8b 5c 24 08              # mov 0x8(%rsp),%ebx
  bd 05 00 00 00           # mov $0x5,%ebp
  e8 ed f7 ff ff           # call 800
  89 d9                    # mov %ebx,%ecx
  89 ee                    # mov %ebp,%esi
  89 c7                    # mov %eax,%edi
  44 8b 44 24 10           # mov 0x10(%rsp),%r8d
  e8 dd f7 ff ff           # call 800
",
        "? 70000040 ? 33 110m ? ? ?",
    ),
    (
        "a jump into the middle",
        "
  ba 01 00 00 00           # mov $0x1,%edx
  b9 02 00 00 00           # mov $0x2,%ecx
  eb 01                    # jmp 100d
  90                       # nop
  be 03 00 00 00           # mov $0x3,%esi
  bf 04 00 00 00           # mov $0x4,%edi
  e8 e4 f7 ff ff           # call 800
  75 f4                    # jne 1012
",
        "4 ? ? ? ? ? ? ?",
    ),
    (
        "a jump out of it",
        "
  ba 01 00 00 00           # mov $0x1,%edx
  85 c0                    # test %eax,%eax
  75 0a                    # jne 1013
  b9 02 00 00 00           # mov $0x2,%ecx
  e8 ed f7 ff ff           # call 800
  c3                       # ret
",
        "? ? 1 2 ? ? ? ?",
    ),
    (
        "the only way is a jump",
        "
  ba 01 00 00 00           # mov $0x1,%edx
  85 c0                    # test %eax,%eax
  75 06                    # jne 100f
  b9 02 00 00 00           # mov $0x2,%ecx
  c3                       # ret
  be 03 00 00 00           # mov $0x3,%esi
  e8 e7 f7 ff ff           # call 800
",
        "? 3 1 ? ? ? ? ?",
    ),
    (
        "a loop from the only jump",
        "
  ba 01 00 00 00           # mov $0x1,%edx
  eb 0a                    # jmp 1011
  be 03 00 00 00           # mov $0x3,%esi
  e8 ef f7 ff ff           # call 800
  b9 04 00 00 00           # mov $0x4,%ecx
  85 c0                    # test %eax,%eax
  75 ed                    # jne 1007
  c3                       # ret
",
        "? 3 ? 4 ? ? ? ?",
    ),
    (
        "the beginning of a function, to which one jump leads",
        "
  be 03 00 00 00           # mov $0x3,%esi
  e8 f6 f7 ff ff           # call 800
  b9 02 00 00 00           # mov $0x2,%ecx
  eb ef                    # jmp 1000
",
        "? 3 ? ? ? ? ? ?",
    ),
    (
        "a table of jumps",
        "
  ba 01 00 00 00           # mov $0x1,%edx
  e8 f6 f7 ff ff           # call 800
  ff e0                    # jmp *%rax
",
        "? ? ? ? ? ? ? ?",
    ),
    (
        "a jump to another function",
        "
  ba 01 00 00 00           # mov $0x1,%edx
  e8 f6 f7 ff ff           # call 800
  ff 25 00 10 00 00        # jmp *0x1000(%rip)
",
        "? ? 1 ? ? ? ? ?",
    ),
    (
        "what is set on a condition, or in a part",
        "
  ba 01 00 00 00           # mov $0x1,%edx
  b9 01 00 00 00           # mov $0x1,%ecx
  be 01 00 00 00           # mov $0x1,%esi
  0f 45 d0                 # cmovne %eax,%edx
  b1 03                    # mov $0x3,%cl
  40 0f 95 c6              # setne %sil
  bf 02 00 00 00           # mov $0x2,%edi
  6b ff 03                 # imul $0x3,%edi,%edi
  64 4c 8b 04 25 28 00 00 00 # mov %fs:0x28,%r8
  44 0f b6 c8              # movzbl %al,%r9d
  88 f8                    # mov %bh,%al
  e8 cc f7 ff ff           # call 800
",
        "6 ? ? ? ? ? ? ?",
    ),
    (
        "memory that is changed later",
        "
  8b 54 24 20              # mov 0x20(%rsp),%edx
  8b 4c 24 10              # mov 0x10(%rsp),%ecx
  8b 74 24 18              # mov 0x18(%rsp),%esi
  8b 7c 24 34              # mov 0x34(%rsp),%edi
  0f 11 44 24 30           # movups %xmm0,0x30(%rsp)
  89 44 24 2c              # mov %eax,0x2c(%rsp)
  c7 44 24 10 01 00 00 00  # movl $0x1,0x10(%rsp)
  c6 44 24 1b 01           # movb $0x1,0x1b(%rsp)
  e8 d5 f7 ff ff           # call 800
",
        "? ? 120m ? ? ? ? ?",
    ),
    (
        "memory that may be changed later",
        "
  8b 54 24 20              # mov 0x20(%rsp),%edx
  89 00                    # mov %eax,(%rax)
  8b 4c 24 20              # mov 0x20(%rsp),%ecx
  e8 f1 f7 ff ff           # call 800
",
        "? ? ? 120m ? ? ? ?",
    ),
    (
        "memory that a loop of the processor changes",
        "
  8b 54 24 20              # mov 0x20(%rsp),%edx
  f3 48 ab                 # rep stos %rax,%es:(%rdi)
  8b 4c 24 20              # mov 0x20(%rsp),%ecx
  e8 f0 f7 ff ff           # call 800
",
        "? ? ? 120m ? ? ? ?",
    ),
    (
        "a stack pointer that is not known",
        "
  8b 54 24 20              # mov 0x20(%rsp),%edx
  48 83 e4 f0              # and $0xfffffffffffffff0,%rsp
  8b 4c 24 20              # mov 0x20(%rsp),%ecx
  e8 ef f7 ff ff           # call 800
",
        "? ? ? 120m ? ? ? ?",
    ),
    (
        "the slots below the stack, and those of the callee",
        "
  8b 54 24 c0              # mov -0x40(%rsp),%edx
  8b 0c 24                 # mov (%rsp),%ecx
  8b 74 24 20              # mov 0x20(%rsp),%esi
  6a 06                    # push $0x6
  5f                       # pop %rdi
  e8 ed f7 ff ff           # call 800
",
        "6 120m ? ? ? ? ? ?",
    ),
    (
        "constants in the file",
        "
  8b 15 00 10 00 00        # mov 0x1000(%rip),%edx
  48 8d 0d 00 10 00 00     # lea 0x1000(%rip),%rcx
  0f be 35 ec 0f 00 00     # movsbl 0xfec(%rip),%esi
  e8 e7 f7 ff ff           # call 800
",
        "? fffffff0 4444 10200d ? ? ? ?",
    ),
    (
        "a value that depends on itself",
        "
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  01 c0                    # add %eax,%eax
  89 c2                    # mov %eax,%edx
  b9 01 00 00 00           # mov $0x1,%ecx
  e8 cc f7 ff ff           # call 800
",
        "? ? ? 1 ? ? ? ?",
    ),
    (
        "a jump instead of a call",
        "
  ba 01 00 00 00           # mov $0x1,%edx
  e9 f6 f7 ff ff           # jmp 800
",
        "? ? ? ? ? ? ? ?",
    ),
    (
        "bytes that are no instructions",
        "
  ba 01 00 00 00           # mov $0x1,%edx
  e8 f6 f7 ff ff           # call 800
  06                       # (bad)
",
        "? ? ? ? ? ? ? ?",
    ),
];
/// Whatever the bytes are, there is an answer.
#[test]
fn changed_bytes_do_no_harm() {
    for (_, text, _) in CASES {
        let (code, back) = assembled(text);
        for (at, bit) in (0..code.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut code = code.clone();
            code[at] ^= 1 << bit;
            shown_arguments(&code, back);
            shown_arguments(&code[..at], back);
        }
    }
}

/// Returns the sentence for a call with these arguments, in hexadecimal or `?`, `m` for those from memory.
fn said(name: &str, flavor: Flavor, given: &str) -> Option<String> {
    let handles = Handles::of(flavor).unwrap_or(Handles {
        world: Some(0x7f00_0000_1000),
        own: Some(0x7f00_0000_2000),
    });
    let given: Vec<&str> = given.split(' ').collect();
    let argument = |index: usize, size: u64| {
        let text = given.get(index).filter(|text| **text != "?")?;
        let (digits, origin) = match text.strip_suffix('m') {
            Some(digits) => (digits, Origin::Memory),
            None => (*text, Origin::Code),
        };
        let word = u64::from_str_radix(digits, 16).unwrap();
        let mask = if size == 4 { 0xffff_ffff } else { u64::MAX };
        let word = word & mask;
        Some(Value { word, origin })
    };
    let site = CallSite::read(shown(name)?, flavor, handles, argument)?;
    assert!(site.is_bounded());
    Some(site.sentence())
}

#[test]
fn what_is_known_of_a_call_is_said() {
    use Flavor::{Mpich, OpenMpi, Standard};
    for (name, flavor, given, expected) in [
        (
            "MPI_Recv",
            Mpich,
            "? 1 4c000405 1 8 44000000 1",
            "MPI_Recv from rank 1, tag 8, WORLD, read from the code",
        ),
        (
            "PMPI_Recv",
            Mpich,
            "? ? ? fffffffe ffffffff 84000002 ?",
            "MPI_Recv from any rank, tag any, read from the code",
        ),
        (
            "MPI_Send",
            OpenMpi,
            "? ? ? fffffffe 7m 7f0000001000",
            "MPI_Send to nobody, tag 7, WORLD, read from the code and from variables as they are now",
        ),
        (
            "MPI_Ssend",
            Standard,
            "? ? ? ffff0003 fffffffe 101",
            "MPI_Ssend to rank ?, tag any, WORLD, read from the code",
        ),
        (
            "MPI_Bcast",
            Standard,
            "? ? ? 0 102",
            "MPI_Bcast root 0, SELF, read from the code",
        ),
        (
            "MPI_Barrier",
            Mpich,
            "44000000",
            "MPI_Barrier on WORLD, read from the code",
        ),
        (
            "MPI_Waitall",
            Mpich,
            "4m ? ?",
            "MPI_Waitall of 4 requests, read from the code and from variables as they are now",
        ),
        (
            "MPI_Sendrecv",
            OpenMpi,
            "? ? ? 3 5 ? ? ? ? 6 7f0000002000 ?",
            "MPI_Sendrecv to rank 3, tag 5, from rank ?, tag 6, SELF, read from the code",
        ),
        // Nothing is known, nothing is asked, nothing waits, and no function.
        ("MPI_Recv", Mpich, "1m 1 1 ? ? ? ?", ""),
        ("MPI_Wait", Mpich, "1 1", ""),
        ("MPI_Comm_size", Mpich, "44000000 1", ""),
        ("MPI_Nothing", Mpich, "44000000", ""),
    ] {
        let found = said(name, flavor, given).unwrap_or_default();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn calls_of_ranks_are_grouped() {
    let site = |tag| {
        CallSite::read(
            shown("MPI_Recv").unwrap(),
            Flavor::Mpich,
            Handles::default(),
            |index, _| {
                (index == 4).then_some(Value {
                    word: tag,
                    origin: Origin::Code,
                })
            },
        )
        .unwrap()
    };
    let sites = [(0, 7), (1, 8), (2, 8)].map(|(rank, tag)| (Rank(rank), site(tag)));
    let said = sentences(&sites.into());
    let said: Vec<String> = said
        .iter()
        .map(|(ranks, text)| format!("{ranks}: {text}"))
        .collect();
    assert_eq!(
        said,
        [
            "1-2: MPI_Recv from rank ?, tag 8, read from the code",
            "0: MPI_Recv from rank ?, tag 7, read from the code"
        ]
    );
}
