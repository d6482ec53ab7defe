from flightrec.incident import layout
from flightrec.incident.document import layout_document
from flightrec.incident.layout import DTYPES
from flightrec.incident.migrate import FORMAT, HISTORY


def test_the_layout_names_what_a_reader_needs():
    text = layout_document()
    assert f"Format {FORMAT}." in text
    assert all(f"| {name} |" in text for name in DTYPES)
    assert all(change in text for change in HISTORY.values())
    assert max(map(len, text.splitlines())) <= 100


def test_it_names_every_object_and_attribute():
    text = layout_document()
    names = [
        *(layout.MANIFEST, layout.STORAGES, layout.STATS, layout.EMPTY),
        *(layout.FORMAT_ATTRIBUTE, layout.ID_ATTRIBUTE, layout.MANIFEST_HASH, layout.STATS_HASH),
        *(layout.HMAC, layout.COMPLETE, layout.TORCH_DTYPE, layout.SHAPE, layout.NAME),
    ]
    assert [name for name in names if f"{name}`" not in text and f"/{name}" not in text] == []
