"""How a transformer reads a text: what is put around it, and which of the tokens are the text's own.

A text may come after an instruction, between special tokens, or contain the strings of special tokens. Which tokens
are its own is therefore decided by character offsets, never by looking for a marker among the token ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from tokenizers import Tokenizer

from pellucid.errors import InputError, shown, without_panic
from pellucid.settings import Limits, Settings
from pellucid.text.unicode import NormalizedText, canonicalize_with_offsets
from pellucid.text.words import Span, split_words

if TYPE_CHECKING:
    from typing_extensions import Self


_DEFAULT_MAX_TOKENS = 512  # as in the LENS paper
_TEXT, _INSTRUCTION = "{text}", "{instruction}"


@dataclass(frozen=True)
class ReadingSettings(Settings):
    """How a text is read.

    Attributes:
        template: what is put around a text; `{text}` is replaced by it. None: only the text.
        instructed_template: the same when there is an instruction, which replaces `{instruction}`.
        instruction: the task, put before each text that is not a document; "" for none.
        end_token: put the tokenizer's end token after the text. None: for causal language models that have one.
        max_length: tokens read at most, all that is put around the text included; a longer text is cut, with a
            warning. None: what the model can read, at most 512.
    """

    template: str | None = "{text}"
    instructed_template: str = "Instruct: {instruction}\nQuery: {text}"
    instruction: str = ""
    end_token: bool | None = None
    max_length: Annotated[int | None, Limits(1)] = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InputError: a value is not allowed; the message names it.
        """
        super().__post_init__()
        for name in ("template", "instructed_template"):
            template = getattr(self, name)
            if template is not None and template.count(_TEXT) != 1:
                raise InputError(f"{name} is {shown(template, 80)}; it must hold {_TEXT} once")

    def resolved(self, tokenizer: Any, predicts_next: bool, context: int) -> Self:
        """Return these settings with everything set that is left to the model, which reads `context` tokens."""
        if self.max_length is not None and self.max_length > context:
            raise InputError(f"max_length is {self.max_length}; the backbone reads {context} tokens at most")
        has_end = getattr(tokenizer, "eos_token_id", None) is not None
        return replace(
            self,
            template=_TEXT if self.template is None else self.template,
            end_token=predicts_next and has_end if self.end_token is None else self.end_token,
            max_length=min(_DEFAULT_MAX_TOKENS, context) if self.max_length is None else self.max_length,
        )

    def affixes(self, instructed: bool) -> tuple[str, ...]:
        """Return what is put before and after a text."""
        template = self.instructed_template if instructed and self.instruction else self.template or _TEXT
        return tuple(part.replace(_INSTRUCTION, self.instruction) for part in template.split(_TEXT))


class Encoding(NamedTuple):
    """A text as the model sees it.

    Attributes:
        ids: token ids, special tokens included, without padding.
        first: position of the first state that is pooled.
        spans: for each pooled state, in order, the characters of the text that its token covers.
        last: position of the state that is the embedding in "last" pooling; -1 for a text without tokens.
        cut: tokens of the text that did not fit.
    """

    ids: list[int]
    first: int
    spans: list[Span]
    last: int
    cut: int


class Reader:
    """Turns texts into encodings, with one tokenizer and one set of settings.

    Texts are read in their canonical form (NFC), and spans stand in the texts as they were given.
    """

    def __init__(self, tokenizer: Any, settings: ReadingSettings) -> None:
        """Copy a fast tokenizer of transformers, without its padding and truncation; take resolved settings."""
        if not getattr(tokenizer, "is_fast", False):
            raise InputError(
                "the tokenizer gives no character offsets, without which a text's own tokens cannot be distinguished "
                "from the instruction's; open the model with a fast tokenizer (a tokenizer.json)"
            )
        self.settings, self.max_length = settings, settings.max_length or _DEFAULT_MAX_TOKENS
        described = tokenizer.backend_tokenizer.to_str()
        with without_panic("the tokenizer"):
            self._joint, self._plain = (Tokenizer.from_str(described) for _ in range(2))
        for copy in (self._joint, self._plain):
            copy.no_truncation()
            copy.no_padding()
        self._plain.encode_special_tokens = True  # a special token's string in a text is text
        self._specials = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
        self._is_shifted = bool(getattr(settings, "shift", False))  # of lexicon models: states one position earlier
        self._before, self._behind = self._outer_tokens(tokenizer)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set what a copy of a tokenizer does not keep."""
        self.__dict__.update(state)
        self._plain.encode_special_tokens = True

    def _outer_tokens(self, tokenizer: Any) -> tuple[list[int], list[int]]:
        """Return the special tokens before and after: the tokenizer's own, and those the settings ask for."""
        with without_panic("the tokenizer"):
            marked = self._joint.encode("a")
        text_positions = [n for n, special in enumerate(marked.special_tokens_mask) if not special]
        before = marked.ids[: text_positions[0]] if text_positions else []
        behind = marked.ids[text_positions[-1] + 1 :] if text_positions else []
        settings = self.settings
        needs_start = self._is_shifted or getattr(settings, "start_token", False)
        if needs_start and not before:
            start = _first_known(tokenizer, "bos_token_id", "eos_token_id", "pad_token_id")
            if start is None:
                name = "shift" if self._is_shifted else "start_token"
                raise InputError(
                    f"{name} needs a token before the text, and the tokenizer has no start, end or padding token; "
                    f"set {name}=False"
                )
            before = [start]
        if needs_start and not settings.end_token:
            behind = []
        if settings.end_token and not behind:
            end = _first_known(tokenizer, "eos_token_id", "sep_token_id")
            if end is None:
                raise InputError("the tokenizer has no end token; set end_token=False")
            behind = [end]
        return before, behind

    def read(self, texts: Sequence[str], *, instructed: bool, instruction: str | None = None) -> list[Encoding]:
        """Return the encodings of `texts`; `instructed` puts an instruction before them, by default the settings'."""
        settings = self.settings if instruction is None else replace(self.settings, instruction=instruction)
        affixes = settings.affixes(instructed)
        forms = list(map(canonicalize_with_offsets, texts))
        odd = {n for n, form in enumerate(forms) if any(special in form.text for special in self._specials)}
        regular = [form.text.join(affixes) for n, form in enumerate(forms) if n not in odd]
        with without_panic("the tokenizer"):
            encoded = iter(self._joint.encode_batch(regular, add_special_tokens=False))
            return [
                self._encoding(
                    form,
                    self._tokenise_apart(form.text, affixes) if n in odd else _split(next(encoded), form.text, affixes),
                )
                for n, form in enumerate(forms)
            ]

    def _tokenise_apart(self, text: str, affixes: tuple[str, ...]) -> _Tokenised:
        """Tokenize a text that contains a special token's string separately, so that the string stays text."""
        before, behind = (self._joint.encode(part, add_special_tokens=False).ids for part in affixes)
        text_encoding = self._plain.encode(text, add_special_tokens=False)
        return before, text_encoding.ids, text_encoding.offsets, behind

    def _encoding(self, form: NormalizedText, tokenised: _Tokenised) -> Encoding:
        """Add the special tokens, and cut the text to what fits."""
        before, text_ids, spans, behind = tokenised
        start, end = [*self._before, *before], [*behind, *self._behind]
        room = self.max_length - len(start) - len(end)
        if room < 1:
            raise InputError(
                f"the template, the instruction and the special tokens take {len(start) + len(end)} tokens, and "
                f"max_length is {self.max_length}; the prompt fills it"
            )
        ids = [*start, *text_ids[:room], *end]
        return Encoding(
            ids,
            len(start) - self._is_shifted,
            [form.span(*span) for span in spans[:room]],
            len(ids) - 1 if text_ids else -1,
            len(text_ids[room:]),
        )


_Tokenised = tuple[list[int], list[int], list[Span], list[int]]
"""Token ids before a text and of the text; the characters of these; and the ids behind it."""


def _split(encoded: Any, text: str, affixes: tuple[str, ...]) -> _Tokenised:
    """Divide the tokens of template and text; one that holds a character of the text is the text's own."""
    ids, offsets = encoded.ids, encoded.offsets
    start, end = len(affixes[0]), len(affixes[0]) + len(text)
    text_positions = [n for n, (first, last) in enumerate(offsets) if last > start and first < end]
    if not text_positions:
        return ids, [], [], []
    low, high = text_positions[0], text_positions[-1] + 1
    spans = [(max(first - start, 0), min(last, end) - start) for first, last in offsets[low:high]]
    return ids[:low], ids[low:high], spans, ids[high:]


def _first_known(tokenizer: Any, *names: str) -> int | None:
    return next((value for name in names if (value := getattr(tokenizer, name, None)) is not None), None)


def whole_words(text: str, spans: Sequence[Span]) -> list[Span]:
    """Return for each token's span the words of `text` it belongs to, as one span; without a word, the token's span."""
    words = split_words(text)
    word_spans: list[Span] = []
    for start, end in spans:
        part = text[start:end]
        start, end = start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())
        touched = [word for word in words if word.start < end and word.end > start]
        if start >= end:  # spaces go with the word right behind them
            touched = [word for word in words if word.start == start]
        if touched:
            start, end = min(start, touched[0].start), max(end, touched[-1].end)
        word_spans.append((start, max(start, end)))
    return word_spans
