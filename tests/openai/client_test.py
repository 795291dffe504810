#!/usr/bin/env python3
"""The unmodified `openai` client against `cleave serve`.

usage: client_test.py CLEAVE MODEL [unittest arguments]     run by tests/openai/run.sh

MODEL needs a chat template. Nothing here depends on what the model says, only on the protocol and
on one request giving one answer.
"""

import asyncio
import json
import os
import sys
import unittest

import openai

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from served import Served, request, wait_until

NAME = "demo"
SERVER = None
CHAT = [{"role": "user", "content": "Name three rivers."}]
PROMPT = "The river flows from the"


def client(key="none"):
    return openai.OpenAI(base_url=SERVER.url + "/v1", api_key=key, max_retries=0, timeout=120)


def chat(**fields):
    fields = {"model": NAME, "messages": CHAT, "max_tokens": 12, "temperature": 0} | fields
    return client().chat.completions.create(**fields)


def complete(**fields):
    fields = {"model": NAME, "prompt": PROMPT, "max_tokens": 12, "temperature": 0} | fields
    return client().completions.create(**fields)


def words_of(chunks):
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


class Models(unittest.TestCase):
    def test_list_and_retrieve(self):
        models = client().models.list().data
        self.assertEqual([m.id for m in models], [NAME])
        self.assertEqual(models[0].object, "model")
        self.assertGreater(models[0].max_model_len, 0)

    def test_model_may_be_left_out(self):
        status, _, body = request(
            SERVER.url + "/v1/chat/completions", {"messages": CHAT, "max_tokens": 1}
        )
        self.assertEqual((status, json.loads(body)["model"]), (200, NAME))


class Chat(unittest.TestCase):
    def test_answer_has_every_part(self):
        answer = chat()
        self.assertEqual((answer.object, answer.model), ("chat.completion", NAME))
        self.assertTrue(answer.id.startswith("chatcmpl-"))
        choice = answer.choices[0]
        self.assertEqual((choice.index, choice.message.role), (0, "assistant"))
        self.assertIn(choice.finish_reason, ("stop", "length"))
        usage = answer.usage
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertLessEqual(usage.completion_tokens, 12)

    def test_same_request_same_answer(self):
        self.assertEqual(chat().choices[0].message.content, chat().choices[0].message.content)

    def test_length_is_kept(self):
        answer = chat(max_tokens=5, extra_body={"ignore_eos": True})
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 5)

    def test_max_completion_tokens_is_the_newer_name(self):
        answer = chat(
            max_tokens=openai.omit, max_completion_tokens=4, extra_body={"ignore_eos": True}
        )
        self.assertEqual(answer.usage.completion_tokens, 4)

    def test_content_in_parts(self):
        parts = [{"type": "text", "text": CHAT[0]["content"]}]
        answer = chat(messages=[{"role": "user", "content": parts}])
        self.assertEqual(answer.choices[0].message.content, chat().choices[0].message.content)

    def test_system_message_and_history(self):
        messages = [
            {"role": "system", "content": "Be brief."},
            *CHAT,
            {"role": "assistant", "content": "Rhine, Nile, Po."},
            {"role": "user", "content": "And one more?"},
        ]
        longer = chat(messages=messages)
        self.assertGreater(longer.usage.prompt_tokens, chat().usage.prompt_tokens)

    def test_choices_and_seed(self):
        fields = {"n": 3, "temperature": 1.0, "seed": 7, "max_tokens": 16}
        first, second = chat(**fields), chat(**fields)
        self.assertEqual([c.index for c in first.choices], [0, 1, 2])
        texts = [c.message.content for c in first.choices]
        self.assertEqual(texts, [c.message.content for c in second.choices])
        self.assertGreater(len(set(texts)), 1)
        other = chat(**(fields | {"seed": 8}))
        self.assertNotEqual(texts, [c.message.content for c in other.choices])

    def test_stop_string(self):
        whole = chat(max_tokens=24, extra_body={"ignore_eos": True}).choices[0].message.content
        stop = whole[4:8]
        answer = chat(max_tokens=24, stop=[stop], extra_body={"ignore_eos": True}).choices[0]
        self.assertEqual(answer.message.content, whole[: whole.index(stop)])
        self.assertEqual((answer.finish_reason, answer.stop_reason), ("stop", stop))
        kept = chat(
            max_tokens=24,
            stop=stop,
            extra_body={"ignore_eos": True, "include_stop_str_in_output": True},
        )
        self.assertEqual(kept.choices[0].message.content, whole[: whole.index(stop) + len(stop)])

    def test_logit_bias_forbids_a_token(self):
        ids = chat(max_tokens=1, extra_body={"return_token_ids": True}).choices[0].token_ids
        answer = chat(
            max_tokens=1, logit_bias={str(ids[0]): -100}, extra_body={"return_token_ids": True}
        )
        self.assertNotEqual(answer.choices[0].token_ids, ids)

    def test_logprobs(self):
        answer = chat(logprobs=True, top_logprobs=4, extra_body={"ignore_eos": True})
        content = answer.choices[0].logprobs.content
        self.assertEqual(len(content), answer.usage.completion_tokens)
        for entry in content:
            self.assertLessEqual(entry.logprob, 0)
            self.assertEqual(len(entry.top_logprobs), 4)
            values = [top.logprob for top in entry.top_logprobs]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertEqual(entry.top_logprobs[0].token, entry.token)
            self.assertEqual(entry.top_logprobs[0].logprob, entry.logprob)
        self.assertIsNone(chat().choices[0].logprobs)


class ChatStream(unittest.TestCase):
    def test_stream_is_the_answer_in_parts(self):
        chunks = list(chat(stream=True))
        self.assertEqual({c.object for c in chunks}, {"chat.completion.chunk"})
        self.assertEqual(len({c.id for c in chunks}), 1)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(words_of(chunks), chat().choices[0].message.content)
        reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
        self.assertEqual([r for r in reasons if r], reasons[-1:])
        self.assertTrue(all(c.usage is None for c in chunks))

    def test_usage_comes_last_with_no_choice(self):
        chunks = list(chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[-1].choices, [])
        whole = chat().usage
        self.assertEqual(chunks[-1].usage.total_tokens, whole.total_tokens)
        self.assertTrue(all(c.usage is None for c in chunks[:-1]))

    def test_usage_in_every_chunk(self):
        options = {"include_usage": True, "continuous_usage_stats": True}
        chunks = list(chat(stream=True, stream_options=options))
        counts = [c.usage.completion_tokens for c in chunks]
        self.assertEqual(counts, sorted(counts))

    def test_choices_are_interleaved_by_index(self):
        fields = {"n": 2, "temperature": 1.0, "seed": 3, "max_tokens": 10}
        texts, ends = ["", ""], [0, 0]
        for chunk in chat(stream=True, **fields):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                ends[choice.index] += choice.finish_reason is not None
        self.assertEqual(ends, [1, 1])
        self.assertEqual(texts, [c.message.content for c in chat(**fields).choices])

    def test_stop_string_never_shows(self):
        whole = chat(max_tokens=24, extra_body={"ignore_eos": True}).choices[0].message.content
        stop = whole[5:11]
        chunks = list(
            chat(max_tokens=24, stop=[stop], stream=True, extra_body={"ignore_eos": True})
        )
        self.assertEqual(words_of(chunks), whole[: whole.index(stop)])
        self.assertEqual(chunks[-1].choices[0].finish_reason, "stop")

    def test_logprobs_in_chunks(self):
        chunks = list(chat(stream=True, logprobs=True, top_logprobs=2))
        entries = [
            entry
            for c in chunks
            if c.choices and c.choices[0].logprobs
            for entry in c.choices[0].logprobs.content
        ]
        whole = chat(logprobs=True, top_logprobs=2).choices[0].logprobs.content
        self.assertEqual(
            [(e.token, e.logprob) for e in entries], [(e.token, e.logprob) for e in whole]
        )

    def test_hanging_up_frees_the_request(self):
        with chat(stream=True, max_tokens=400, extra_body={"ignore_eos": True}) as stream:
            next(iter(stream))
        idle = lambda: SERVER.metric("vllm:num_requests_running") == 0
        wait_until(idle, 5, "no running request after the client hung up")


class Completions(unittest.TestCase):
    def test_answer_has_every_part(self):
        answer = complete()
        self.assertEqual((answer.object, answer.model), ("text_completion", NAME))
        self.assertTrue(answer.id.startswith("cmpl-"))
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))

    def test_sixteen_tokens_by_default(self):
        answer = complete(max_tokens=openai.omit, extra_body={"ignore_eos": True})
        self.assertEqual(answer.usage.completion_tokens, 16)

    def test_prompt_as_ids_and_lists(self):
        _, _, body = request(SERVER.url + "/tokenize", {"model": NAME, "prompt": PROMPT})
        ids = json.loads(body)["tokens"]
        text = complete().choices[0].text
        self.assertEqual(complete(prompt=ids).choices[0].text, text)
        both = complete(prompt=[PROMPT, "One two three"])
        self.assertEqual([c.index for c in both.choices], [0, 1])
        self.assertEqual(both.choices[0].text, text)
        self.assertEqual(complete(prompt=[ids, ids]).choices[1].text, text)

    def test_echo(self):
        text = complete().choices[0].text
        self.assertEqual(complete(echo=True).choices[0].text, PROMPT + text)

    def test_logprobs(self):
        answer = complete(logprobs=3, extra_body={"ignore_eos": True})
        parts = answer.choices[0].logprobs
        count = answer.usage.completion_tokens
        sizes = [len(parts.tokens), len(parts.token_logprobs), len(parts.text_offset)]
        self.assertEqual(sizes, [count] * 3)
        for token, value, top in zip(parts.tokens, parts.token_logprobs, parts.top_logprobs):
            self.assertEqual(top[token], value)
            self.assertEqual(max(top.values()), value)

    def test_prompt_logprobs(self):
        answer = complete(max_tokens=1, extra_body={"prompt_logprobs": 2})
        rows = answer.choices[0].prompt_logprobs
        self.assertEqual(len(rows), answer.usage.prompt_tokens)
        self.assertIsNone(rows[0])
        self.assertTrue(all(len(row) >= 2 for row in rows[1:]))

    def test_stream(self):
        chunks = list(complete(stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].text for c in chunks if c.choices)
        self.assertEqual(text, complete().choices[0].text)
        self.assertEqual(chunks[-1].usage.total_tokens, complete().usage.total_tokens)

    def test_sampling_fields_of_vllm(self):
        greedy = complete().choices[0].text
        narrow = complete(temperature=1.0, seed=1, extra_body={"top_k": 1})
        self.assertEqual(narrow.choices[0].text, greedy)
        ids = complete(extra_body={"return_token_ids": True}).choices[0].token_ids
        stopped = complete(extra_body={"stop_token_ids": [ids[2]], "return_token_ids": True})
        self.assertEqual(stopped.choices[0].token_ids, ids[: ids.index(ids[2]) + 1])
        self.assertEqual(stopped.choices[0].stop_reason, ids[2])
        only = complete(extra_body={"allowed_token_ids": [ids[0]], "return_token_ids": True})
        self.assertEqual(set(only.choices[0].token_ids), {ids[0]})

    def test_unknown_fields_are_ignored(self):
        known = complete().choices[0].text
        self.assertEqual(complete(extra_body={"no_such_field": 1}).choices[0].text, known)


class OneAnswer(unittest.TestCase):
    def test_company_does_not_change_an_answer(self):
        prompts = [f"{PROMPT} {i} hills and {i * i} towns to the" for i in range(8)]
        alone = [complete(prompt=p, logprobs=0).choices[0] for p in prompts]

        async def together():
            async with openai.AsyncOpenAI(
                base_url=SERVER.url + "/v1", api_key="none", max_retries=0
            ) as async_client:
                calls = [
                    async_client.completions.create(
                        model=NAME, prompt=p, max_tokens=12, temperature=0, logprobs=0
                    )
                    for p in prompts
                ]
                return [answer.choices[0] for answer in await asyncio.gather(*calls)]

        for single, shared in zip(alone, asyncio.run(together())):
            self.assertEqual(single.text, shared.text)
            self.assertEqual(single.logprobs.token_logprobs, shared.logprobs.token_logprobs)


class Errors(unittest.TestCase):
    def refused(self, call, param, **fields):
        with self.assertRaises(openai.BadRequestError) as caught:
            call(**fields)
        self.assertEqual(caught.exception.body["param"], param, caught.exception.body)
        self.assertEqual(caught.exception.body["code"], 400)
        return caught.exception.body["message"]

    def test_unknown_model(self):
        for call in (chat, complete):
            with self.assertRaises(openai.NotFoundError) as caught:
                call(model="nobody")
            error = caught.exception.body
            self.assertEqual((error["param"], error["type"]), ("model", "NotFoundError"))
            self.assertIn("nobody", error["message"])

    def test_values_out_of_range_name_their_field(self):
        cases = {
            "temperature": [-0.5, 2.5],
            "top_p": [0, 1.5, -1],
            "presence_penalty": [-3, 3],
            "frequency_penalty": [2.5],
            "max_tokens": [-1],
            "n": [0, -2],
        }
        for field, values in cases.items():
            for value in values:
                with self.subTest(field=field, value=value):
                    self.refused(chat, field, **{field: value})

    def test_extra_fields_are_checked_too(self):
        cases = {
            "top_k": -5,
            "min_p": 1.5,
            "repetition_penalty": 0,
            "min_tokens": -1,
            "stop_token_ids": [-1],
            "allowed_token_ids": [10**9],
        }
        for field, value in cases.items():
            with self.subTest(field=field):
                self.refused(complete, field, extra_body={field: value})

    def test_wrong_types_name_their_field(self):
        self.refused(chat, "temperature", temperature="hot")
        self.refused(chat, "messages", messages="hello")
        self.refused(complete, "max_tokens", max_tokens="many")

    def test_too_many_logprobs(self):
        self.refused(chat, "top_logprobs", logprobs=True, top_logprobs=1000)

    def test_more_than_the_context(self):
        limit = client().models.list().data[0].max_model_len
        with self.assertRaises(openai.BadRequestError) as caught:
            complete(prompt=[5] * (limit + 1), max_tokens=1)
        self.assertIn(str(limit), caught.exception.body["message"])

    def test_stream_options_without_stream(self):
        self.refused(chat, "stream_options", stream_options={"include_usage": True})

    def test_body_that_is_no_json(self):
        for body in (b"{", b"[1]", b"\xff\xfe", b""):
            status, _, answer = request(SERVER.url + "/v1/chat/completions", body)
            self.assertEqual(status, 400, body)
            self.assertIn("message", json.loads(answer)["error"])

    def test_unknown_path_and_method(self):
        self.assertEqual(request(SERVER.url + "/v1/nothing")[0], 404)
        self.assertEqual(request(SERVER.url + "/v1/chat/completions")[0], 405)

    def test_server_still_answers(self):
        self.assertTrue(chat().choices[0].message.content is not None)


class Keys(unittest.TestCase):
    def test_a_key_is_asked_for(self):
        with Served(sys.argv[1], sys.argv[2], ["--api-key", "secret", *flags()]) as guarded:
            wrong = openai.OpenAI(base_url=guarded.url + "/v1", api_key="x", max_retries=0)
            with self.assertRaises(openai.AuthenticationError):
                wrong.models.list()
            right = openai.OpenAI(base_url=guarded.url + "/v1", api_key="secret", max_retries=0)
            self.assertEqual(right.models.list().data[0].id, NAME)
            self.assertEqual(request(guarded.url + "/health")[0], 200)


def flags():
    return ["--served-model-name", NAME, "--max-model-len", "1024"]


def main():
    global SERVER
    if len(sys.argv) < 3:
        sys.exit("usage: client_test.py CLEAVE MODEL [unittest arguments]")
    with Served(sys.argv[1], sys.argv[2], flags(), log=os.environ.get("CLEAVE_LOG")) as SERVER:
        program = unittest.main(argv=[sys.argv[0], *sys.argv[3:]], exit=False, verbosity=1)
    sys.exit(not program.result.wasSuccessful())


if __name__ == "__main__":
    main()
