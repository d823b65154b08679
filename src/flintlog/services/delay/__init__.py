"""Delay levels: messages that wait as long as their level says (RocketMQ's ScheduleMessageService)."""
