# `MPIR_Breakpoint`, and what a C compiler would say about all the symbols, in DWARF 4.
#
# The Rust compiler describes them under Rust's names and in Rust's words, which tools for C do not look up. With this,
# `ptype MPIR_PROCDESC` and `print MPIR_proctable[0]` mean in gdb what they mean with every other starter, and gdb speaks
# C when it stops at the breakpoint. `strip` removes the description; then tools assume the layout.

.section .text.MPIR_Breakpoint,"ax",@progbits
.p2align 4
.globl MPIR_Breakpoint
.type MPIR_Breakpoint, @function
MPIR_Breakpoint:
    .cfi_startproc
    nop
    ret
    .cfi_endproc
.Lmpir_breakpoint_end:
.size MPIR_Breakpoint, .Lmpir_breakpoint_end - MPIR_Breakpoint

# The sections are `unique`: the compiler counts on it that what it writes begins at offset 0 of sections of these names.
.section .debug_abbrev,"",@progbits,unique,4021
.Lmpir_abbreviations:
    # 1: compile unit with children: language, name, address, size
    .byte 1, 0x11, 1, 0x13, 0x0b, 0x03, 0x08, 0x11, 0x01, 0x12, 0x07, 0, 0
    # 2: base type: name, size, encoding
    .byte 2, 0x24, 0, 0x03, 0x08, 0x0b, 0x0b, 0x3e, 0x0b, 0, 0
    # 3: pointer: size, to what
    .byte 3, 0x0f, 0, 0x0b, 0x0b, 0x49, 0x13, 0, 0
    # 4: volatile: what
    .byte 4, 0x35, 0, 0x49, 0x13, 0, 0
    # 5: structure with children: size
    .byte 5, 0x13, 1, 0x0b, 0x0b, 0, 0
    # 6: member: name, type, offset
    .byte 6, 0x0d, 0, 0x03, 0x08, 0x49, 0x13, 0x38, 0x0b, 0, 0
    # 7: typedef: name, of what
    .byte 7, 0x16, 0, 0x03, 0x08, 0x49, 0x13, 0, 0
    # 8: variable: name, type, external, location
    .byte 8, 0x34, 0, 0x03, 0x08, 0x49, 0x13, 0x3f, 0x19, 0x02, 0x18, 0, 0
    # 9: function: name, external, with a prototype, address, size
    .byte 9, 0x2e, 0, 0x03, 0x08, 0x3f, 0x19, 0x27, 0x19, 0x11, 0x01, 0x12, 0x07, 0, 0
    # 10: array with children: of what
    .byte 10, 0x01, 1, 0x49, 0x13, 0, 0
    # 11: its subscripts: type, the highest one
    .byte 11, 0x21, 0, 0x49, 0x13, 0x2f, 0x05, 0, 0
    .byte 0

.section .debug_info,"",@progbits,unique,4022
.Lmpir_unit:
    .long .Lmpir_end - .Lmpir_start
.Lmpir_start:
    .short 4
    .long .Lmpir_abbreviations
    # Bytes of an address.
    .byte 8
    # C99
    .byte 1, 0x0c
    .asciz "MPIR"
    .quad MPIR_Breakpoint
    .quad .Lmpir_breakpoint_end - MPIR_Breakpoint
.Lmpir_int:
    .byte 2
    .asciz "int"
    .byte 4, 5
.Lmpir_char:
    .byte 2
    .asciz "char"
    .byte 1, 6
.Lmpir_text:
    .byte 3, 8
    .long .Lmpir_char - .Lmpir_unit
.Lmpir_flag:
    .byte 4
    .long .Lmpir_int - .Lmpir_unit
.Lmpir_row:
    .byte 5, 24
    .byte 6
    .asciz "host_name"
    .long .Lmpir_text - .Lmpir_unit
    .byte 0
    .byte 6
    .asciz "executable_name"
    .long .Lmpir_text - .Lmpir_unit
    .byte 8
    .byte 6
    .asciz "pid"
    .long .Lmpir_int - .Lmpir_unit
    .byte 16
    .byte 0
.Lmpir_procdesc:
    .byte 7
    .asciz "MPIR_PROCDESC"
    .long .Lmpir_row - .Lmpir_unit
.Lmpir_table:
    .byte 3, 8
    .long .Lmpir_procdesc - .Lmpir_unit

.Lmpir_path:
    .byte 10
    .long .Lmpir_char - .Lmpir_unit
    .byte 11
    .long .Lmpir_int - .Lmpir_unit
    .short 256 - 1
    .byte 0
.Lmpir_arguments:
    .byte 10
    .long .Lmpir_char - .Lmpir_unit
    .byte 11
    .long .Lmpir_int - .Lmpir_unit
    .short 4096 - 1
    .byte 0

.macro mpir_variable name, type
    .byte 8
    .asciz "\name"
    .long \type - .Lmpir_unit
    # A location of 9 bytes: the address is ...
    .byte 9, 3
    .quad \name
.endm
    mpir_variable MPIR_proctable, .Lmpir_table
    mpir_variable MPIR_proctable_size, .Lmpir_int
    mpir_variable MPIR_being_debugged, .Lmpir_flag
    mpir_variable MPIR_debug_state, .Lmpir_flag
    mpir_variable MPIR_debug_abort_string, .Lmpir_text
    mpir_variable MPIR_i_am_starter, .Lmpir_int
    mpir_variable MPIR_partial_attach_ok, .Lmpir_int
    mpir_variable totalview_jobid, .Lmpir_text
    mpir_variable MPIR_executable_path, .Lmpir_path
    mpir_variable MPIR_server_arguments, .Lmpir_arguments
.purgem mpir_variable
    .byte 9
    .asciz "MPIR_Breakpoint"
    .quad MPIR_Breakpoint
    .quad .Lmpir_breakpoint_end - MPIR_Breakpoint
    .byte 0
.Lmpir_end:
