"""The documentation names every code and every setting."""

from pathlib import Path

from contracts import PRESETS, Code
from pipeline import DIALECTS
from service.settings import VARIABLES

ROOT = Path(__file__).parent.parent


def test_docs_list_every_code_with_its_meaning() -> None:
    page = (ROOT / "docs" / "codes.md").read_text()

    assert [code for code in Code if f"| `{code}` | {code.meaning} |" not in page] == []


def test_docs_list_every_setting() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()

    assert [name for name in VARIABLES if f"`{name}`" not in page] == []


def test_readme_names_every_preset_and_format() -> None:
    page = (ROOT / "README.md").read_text()

    assert [name for name in [*PRESETS, *(dialect.name for dialect in DIALECTS)] if f"`{name}`" not in page] == []
