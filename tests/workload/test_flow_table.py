"""Are tables of flows read by their columns, and refused by line?"""

import pytest

from emu.scenario.readers.tables import Row
from emu.scenario.readers.workload_files import FlowTableError, read_flow_table


def test_columns_may_stand_in_any_order_and_carry_their_unit() -> None:
    table = "# a comment\nsize_bytes, dst ,src,start_ps\n\n4096,1,0,500\n 8192 , 0 , 1 , 0 \n"
    assert read_flow_table(table) == [
        Row(4, {"size": "4096B", "dst": "1", "src": "0", "start": "500ps"}),
        Row(5, {"size": "8192B", "dst": "0", "src": "1", "start": "0ps"}),
    ]


def test_cells_with_units_are_handed_on_as_they_are() -> None:
    assert read_flow_table('src,dst,size,start\n0,1,"1MiB",10us\n') == [
        Row(2, {"src": "0", "dst": "1", "size": "1MiB", "start": "10us"})
    ]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("", "line 1: no flow in the table; accepted: a line of columns, then flows"),
        ("src,dst,size\n", "line 1: no flow in the table"),
        ("src,dst\n0,1\n", "line 1: columns src,dst; accepted: src,dst,size (or size_bytes), and optionally"),
        ("src,dst,size,size_bytes\n0,1,1B,1\n", "line 1: columns src,dst,size,size_bytes; accepted: "),
        ("src,dst,size,rate\n0,1,1B,1\n", "line 1: unknown column 'rate'; accepted: "),
        ("src,src,size\n0,1,1B\n", "line 1: column 'src' twice"),
        ("src,dst,size\n0,1\n", "line 2: 2 cells under 3 columns; accepted: src, dst, size"),
        ('src,dst,size\n0,1,"1B\n', "line 2: not CSV: "),
    ],
)
def test_what_is_no_table_of_flows_is_refused_by_line(table: str, said: str) -> None:
    with pytest.raises(FlowTableError) as error:
        read_flow_table(table)
    assert str(error.value).startswith(said)
